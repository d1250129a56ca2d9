"""Whether an expression matches a pattern, and what each part of the pattern matches then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback.ir.errors import UserError
from pullback.ir.module import IRModule
from pullback.ir.node import structural_equal
from pullback.relay.analysis.equality import alpha_equal
from pullback.relay.dataflow_pattern.graph import DataflowGraph
from pullback.relay.dataflow_pattern.patterns import (
    AltPattern,
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataTypePattern,
    DFPattern,
    DominatorPattern,
    ExprPattern,
    FunctionPattern,
    IfPattern,
    LetPattern,
    ShapePattern,
    TupleGetItemPattern,
    TuplePattern,
    TypePattern,
    VarPattern,
    WildcardPattern,
)
from pullback.relay.expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var, as_expr
from pullback.relay.infer import infer_expr
from pullback.relay.op.registry import Op
from pullback.relay.ty import TensorType, Type
from pullback.relay.visitor import children

_COMMUTATIVE = ("add", "multiply")
Found = dict[DFPattern, list[Any]]


class Matcher:
    """Matches patterns against parts of one expression; ``module`` has the functions and data types that it uses."""

    def __init__(self, graph: DataflowGraph, module: IRModule | None = None) -> None:
        self.graph, self.module = graph, module
        self._found: Found = {}
        self._trail: list[DFPattern] = []  # in the order in which they matched
        self._several = False  # whether a pattern may match more than one expression
        self._types: dict[Any, Type | None] = {}

    def match(self, pattern: DFPattern, expr: Any) -> Found | None:
        """The expressions that each part of the pattern matches (several where it is the path of a DominatorPattern);
        None where the expression does not match."""
        self._found, self._trail, self._several = {}, [], False
        return self._found if self._visit(pattern, expr) else None

    def _visit(self, pattern: DFPattern, expr: Any) -> bool:
        if pattern in self._found and not self._several:
            return expr in self._found[pattern]
        mark = len(self._trail)
        if not _CASES[type(pattern)](self, pattern, expr):
            self._forget(mark)
            return False
        self._found.setdefault(pattern, []).append(expr)
        self._trail.append(pattern)
        return True

    def _forget(self, mark: int) -> None:
        for pattern in reversed(self._trail[mark:]):
            self._found[pattern].pop()
            if not self._found[pattern]:
                del self._found[pattern]
        del self._trail[mark:]

    def _all(self, patterns: Sequence[DFPattern] | None, exprs: Sequence[Any]) -> bool:
        """Whether they match one by one; no patterns match anything."""
        if patterns is None:
            return True
        mark = len(self._trail)
        if len(patterns) == len(exprs) and all(self._visit(p, e) for p, e in zip(patterns, exprs, strict=True)):
            return True
        self._forget(mark)
        return False

    # leaves

    def _expr(self, pattern: ExprPattern, expr: Any) -> bool:
        if isinstance(pattern.expr, Op) or isinstance(expr, Op):
            return pattern.expr is expr
        return alpha_equal(pattern.expr, expr)

    def _var(self, pattern: VarPattern, expr: Any) -> bool:
        return isinstance(expr, Var) and pattern.name in ("", expr.name)

    def _constant(self, pattern: ConstantPattern, expr: Any) -> bool:
        return isinstance(expr, Constant)

    def _wildcard(self, pattern: WildcardPattern, expr: Any) -> bool:
        return True

    # parts

    def _alt(self, pattern: AltPattern, expr: Any) -> bool:
        return self._visit(pattern.left, expr) or self._visit(pattern.right, expr)

    def _tuple(self, pattern: TuplePattern, expr: Any) -> bool:
        return isinstance(expr, Tuple) and self._all(pattern.fields, expr.fields)

    def _item(self, pattern: TupleGetItemPattern, expr: Any) -> bool:
        if not isinstance(expr, TupleGetItem) or pattern.index not in (None, -1, expr.index):
            return False
        return self._visit(pattern.tuple_value, expr.tuple_value)

    def _if(self, pattern: IfPattern, expr: Any) -> bool:
        return isinstance(expr, If) and self._all(pattern.parts, (expr.cond, expr.true_branch, expr.false_branch))

    def _let(self, pattern: LetPattern, expr: Any) -> bool:
        return isinstance(expr, Let) and self._all(pattern.parts, (expr.variable, expr.value, expr.body))

    def _function(self, pattern: FunctionPattern, expr: Any) -> bool:
        return (
            isinstance(expr, Function)
            and self._all(pattern.params, expr.params)
            and self._visit(pattern.body, expr.body)
        )

    def _call(self, pattern: CallPattern, expr: Any) -> bool:
        if not isinstance(expr, Call):
            return False
        if not self._visit(pattern.op, expr.op):
            return any(self._visit(other, expr) for other in _associated(pattern, expr))
        if self._all(pattern.args, expr.args):
            return True
        if _name(pattern) not in _COMMUTATIVE or pattern.args is None:
            return False
        return self._all(pattern.args[::-1], expr.args)

    # constraints

    def _attr(self, pattern: AttrPattern, expr: Any) -> bool:
        if not self._visit(pattern.pattern, expr):
            return False
        if isinstance(expr, Op):
            return all(name == "TOpPattern" and expr.pattern == value for name, value in pattern.attrs.items())
        if not isinstance(expr, (Call, Function)):
            return False
        return all(name in expr.attrs and same_value(expr.attrs[name], v) for name, v in pattern.attrs.items())

    def _type_of(self, expr: Any) -> Type | None:
        """The expression's type; None where it has none, or none that is known."""
        if not isinstance(expr, Expr):
            return None
        if expr.checked_type_ is not None:
            return expr.checked_type_
        if expr not in self._types:
            try:
                self._types[expr] = infer_expr(expr, self.module).checked_type
            except UserError:
                self._types[expr] = None
        return self._types[expr]

    def _tensor(self, expr: Any) -> TensorType | None:
        type_ = self._type_of(expr)
        return type_ if isinstance(type_, TensorType) else None

    def _has_type(self, pattern: TypePattern, expr: Any) -> bool:
        if not self._visit(pattern.pattern, expr):
            return False
        type_ = self._type_of(expr)
        return type_ is not None and structural_equal(type_, pattern.type)

    def _has_dtype(self, pattern: DataTypePattern, expr: Any) -> bool:
        if not self._visit(pattern.pattern, expr):
            return False
        tensor = self._tensor(expr)
        return tensor is not None and tensor.dtype == pattern.dtype

    def _has_shape(self, pattern: ShapePattern, expr: Any) -> bool:
        if not self._visit(pattern.pattern, expr):
            return False
        tensor = self._tensor(expr)
        return tensor is not None and structural_equal(tensor.shape, pattern.shape)

    # domination

    def _dominator(self, pattern: DominatorPattern, expr: Any) -> bool:
        if not self._visit(pattern.child, expr):
            return False
        between: dict[Any, None] = {}
        pending = list(_inputs(expr))
        while pending:
            node = pending.pop()
            if node in between or self._visit(pattern.parent, node):
                continue
            self._several, outer = True, self._several
            on_the_path = self._visit(pattern.path, node)
            self._several = outer
            if not on_the_path:
                return False
            between[node] = None
            pending.extend(_inputs(node))
        if pattern.parent not in self._found:
            return False
        inside = {expr, *between}
        computed = (*filter(children, between), *self._found[pattern.parent])
        return all(user in inside for node in computed for user in self.graph.users[node])


def _inputs(expr: Any) -> tuple[Any, ...]:
    """The parts of an expression, without the operator of a call."""
    return expr.args if isinstance(expr, Call) and isinstance(expr.op, Op) else children(expr)


def _name(pattern: DFPattern) -> str:
    """The name of the operator of whose calls this is a pattern, if it is one."""
    op = pattern.op if isinstance(pattern, CallPattern) else None
    return op.expr.name if isinstance(op, ExprPattern) and isinstance(op.expr, Op) else ""


def _called(expr: Any) -> str:
    return expr.op.name if isinstance(expr, Call) and isinstance(expr.op, Op) else ""


def _associated(pattern: CallPattern, call: Call) -> list[CallPattern]:
    """For ``a * b / c`` and ``a * (b / c)`` patterns of the other form, where the call has that."""
    inner = {_called(arg) for arg in call.args}
    args = pattern.args or ()
    if len(args) != 2:
        return []
    if _name(pattern) == "divide" and _called(call) == "multiply" and "divide" in inner:
        product, divisor = args
        if not isinstance(product, CallPattern) or _name(product) != "multiply" or product.args is None:
            return []
        a, b = product.args
        return [product.op(y, pattern.op(x, divisor)) for x, y in ((a, b), (b, a))]
    if _name(pattern) == "multiply" and _called(call) == "divide" and "multiply" in inner:
        found = []
        for quotient, other in (args, args[::-1]):
            if isinstance(quotient, CallPattern) and _name(quotient) == "divide" and quotient.args is not None:
                found.append(quotient.op(pattern.op(quotient.args[0], other), quotient.args[1]))
        return found
    return []


def same_value(value: Any, wanted: Any) -> bool:
    """Whether an attribute has the value."""
    if isinstance(value, (int, float, str, bool)) and isinstance(wanted, (int, float, str, bool)):
        return value == wanted
    return structural_equal(value, wanted)


_CASES: dict[type, Callable[[Matcher, Any, Any], bool]] = {
    ExprPattern: Matcher._expr,
    VarPattern: Matcher._var,
    ConstantPattern: Matcher._constant,
    WildcardPattern: Matcher._wildcard,
    AltPattern: Matcher._alt,
    TuplePattern: Matcher._tuple,
    TupleGetItemPattern: Matcher._item,
    IfPattern: Matcher._if,
    LetPattern: Matcher._let,
    FunctionPattern: Matcher._function,
    CallPattern: Matcher._call,
    AttrPattern: Matcher._attr,
    TypePattern: Matcher._has_type,
    DataTypePattern: Matcher._has_dtype,
    ShapePattern: Matcher._has_shape,
    DominatorPattern: Matcher._dominator,
}


def match(pattern: DFPattern, expr: Any) -> bool:
    """Whether the whole expression matches the pattern.

    >>> from pullback.relay.expr import call_op, var
    >>> from pullback.relay.dataflow_pattern import is_op, wildcard
    >>> match(is_op("tanh")(wildcard()), call_op("tanh", var("x")))
    True
    """
    expr = as_expr(expr)
    return Matcher(DataflowGraph(expr)).match(pattern, expr) is not None
