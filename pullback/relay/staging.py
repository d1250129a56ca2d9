"""Evaluation whose tensors are expressions of the graph IR: how a program of relay becomes a function of that.

The evaluator runs a program on arrays; this runs it on graph values, which stand for arrays. Functions, references,
data types and matches are computed meanwhile, so what is left of them is what they compute: calls are inlined,
references hold graph values, the branches of a match are chosen. What depends on values of tensors is written:

- an ``If`` on a tensor becomes one of the graph IR; what its branches write to references is a result of it;
- a function that calls itself and takes tensors becomes one of the graph IR, which makes tail calls loops;
- where branches give functions or references, what comes after them is written once for each (gradients of branches).

What has no form there is a :class:`NotDataflow`: a function or data that running chooses in the middle of something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback import ir, relax
from pullback.ir.errors import InternalError, UserError
from pullback.ir.module import IRModule
from pullback.ir.node import span_scope
from pullback.relax.op.namespace import ops
from pullback.relax.recursion import recursive
from pullback.relax.struct_info import StructInfo, TupleStructInfo, format_info
from pullback.relay.adt import (
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
)
from pullback.relay.attrs import Attrs
from pullback.relay.evaluate.arrays import complete_attrs
from pullback.relay.evaluate.graph import Uses, free_variables
from pullback.relay.evaluate.values import Data
from pullback.relay.expr import (
    Call,
    Constant,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from pullback.relay.op.meaning import info_of, lower_call, resolve, type_of_value
from pullback.relay.op.meaning import value as value_of_operator
from pullback.relay.op.registry import Op
from pullback.relay.ty import FuncType, Type

MOST_UNROLLED = 10_000  # calls of one function inside of one another
MOST_COPIES = 64  # of what comes after branches
MOST_NESTED = 50  # branches inside of one another
MOST_FOLDED = 64  # elements of a constant that is computed meanwhile
HINT = (
    'the executors "vm" and "debug" run the whole language; where control does not depend on tensors,'
    " relay.transform.PartialEvaluate() and DeadCodeElimination() leave straight code"
)


class NotDataflow(UserError):
    """A construct that has no form in the graph IR."""


class Unjoinable(NotDataflow):
    """What two branches give is no value of the graph IR."""


class UnknownType(UserError):
    """A type that has to be known, and is what inference finds."""


class Scope:
    """The values of variables and nodes in one call of a function, or in one branch; those around it are seen too."""

    __slots__ = ("branches", "effects", "isolated", "outer", "uses", "values")

    def __init__(self, uses: Uses, outer: Scope | None = None, isolated: bool = False) -> None:
        self.uses, self.outer, self.isolated = uses, outer, isolated
        self.values: dict[Any, Any] = {}
        self.branches: tuple[tuple[If, bool], ...] = ()  # in which it is, of its function
        self.effects: dict[Any, tuple[tuple[If, bool], ...]] = {}  # nodes with effects: the branches they were in

    def branch(self, choice: If, taken: bool) -> Scope:
        """The scope of a branch, of which one runs when the program does."""
        if len(self.branches) >= MOST_NESTED:
            message = f"branches are nested more than {MOST_NESTED} levels deep"
            raise NotDataflow(message, span=choice.span, hint=HINT)
        inside = Scope(self.uses, self)
        inside.branches, inside.effects = (*self.branches, (choice, taken)), self.effects
        return inside

    def check_once(self, node: Any) -> None:
        """Raise NotDataflow where a node with effects was computed in a branch, and is needed outside of it: whether it
        is to be computed then, only running tells."""
        before = self.effects.get(node)
        if before is not None and all((choice, not taken) not in self.branches for choice, taken in before):
            message = "reference: what a branch has done with one is needed outside of the branch"
            raise NotDataflow(message, span=node.span, hint=HINT)

    def find(self, node: Any) -> Any:
        """What the node is known to be, or None."""
        scope: Scope | None = self
        only_variables = False
        while scope is not None:
            if not only_variables or isinstance(node, Var):
                found = scope.values.get(node)
                if found is not None:
                    return found
            only_variables = only_variables or scope.isolated
            scope = scope.outer
        return None


class StagedFunction:
    """A function with the scope that it was made in; ``name`` is that of a function of the module, or of a variable."""

    __slots__ = ("function", "name", "recursive", "scope", "uses")

    def __init__(self, function: Function, scope: Scope | None, uses: Uses, name: str, recursive: bool) -> None:
        self.function, self.scope, self.uses, self.name, self.recursive = function, scope, uses, name, recursive


class StagedRef:
    """A reference: ``value`` is what it holds at this point of the program. ``born`` orders them by age."""

    __slots__ = ("born", "value")

    def __init__(self, value: Any, born: int) -> None:
        self.value, self.born = value, born


class Stager:
    """Evaluates into ``builder``, which has an open function. ``module`` has the functions that programs call;
    ``aliases`` are variables that stand for other expressions. Without ``recursion``, functions that call themselves
    are no dataflow; ``most_calls`` is how many calls of functions may be inlined."""

    def __init__(
        self,
        module: IRModule,
        builder: relax.BlockBuilder,
        aliases: Mapping[Var, Any] | None = None,
        recursion: bool = True,
        most_calls: int | None = None,
    ) -> None:
        self.module, self.builder, self.aliases = module, builder, aliases or {}
        self.recursion, self.calls_left, self.copies_left = recursion, most_calls, MOST_COPIES
        self._globals: dict[str, StagedFunction] = {}
        self._writes: list[tuple[StagedRef, Any]] = []  # references written to, with what they held before
        self._born = 0
        self._effects = 0  # references made, read and written
        self._open: dict[StagedFunction, int] = {}  # functions that are being inlined: how often
        self._written: dict[StagedFunction, relax.Var] = {}  # recursive ones, inside them
        self._barrier = -1  # references that are older cannot be written to: a recursive function is around

    # ---- functions

    def call_function(self, function: Function, arguments: Sequence[Any]) -> Any:
        """The value of a closed function for these arguments."""
        return self.apply(StagedFunction(function, None, Uses(function), "the function", False), arguments, None)

    def apply(self, function: Any, arguments: Sequence[Any], span: Any) -> Any:
        """What a function value gives."""
        if isinstance(function, (Op, Constructor)):
            return self._primitive(function, arguments, Attrs(), span)
        if not isinstance(function, StagedFunction):
            raise NotDataflow(f"{_kind(function)} is called, which is no function", span=span)
        params = function.function.params
        if len(params) != len(arguments):
            raise UserError(f"{function.name} takes {len(params)} arguments, got {len(arguments)}", span=span)
        if function.recursive and all(map(is_graph_value, arguments)):
            return self._recursive(function, arguments, span)
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left < 0:
                raise NotDataflow("the program makes too many calls to inline them", span=span)
        depth = self._open.get(function, 0)
        if depth >= MOST_UNROLLED:
            message = f"recursion: {function.name} calls itself more than {MOST_UNROLLED} times when it is unrolled"
            raise NotDataflow(message, span=span or function.function.span, hint=HINT)
        self._open[function] = depth + 1
        try:
            return self.value(function.function.body, self._scope(function, arguments))
        finally:
            self._open[function] = depth

    def _scope(self, function: StagedFunction, arguments: Sequence[Any]) -> Scope:
        """The scope of a call."""
        scope = Scope(function.uses, function.scope, function.function in function.uses.apart)
        scope.values.update(zip(function.function.params, arguments, strict=True))
        return scope

    def _recursive(self, function: StagedFunction, arguments: Sequence[Any], span: Any) -> Any:
        """A call of a function that calls itself, as a function of the graph IR."""
        if not self.recursion:
            raise NotDataflow(
                f"recursion: {function.name} calls itself", span=span or function.function.span, hint=HINT
            )
        operands = [to_graph(a) for a in arguments]
        known = self._written.get(function)
        if known is not None:
            with span_scope(span):
                return self.emit(relax.Call(known, tuple(operands)))
        params = [o.struct_info for o in operands]
        result = self._result_of(function, span)
        barrier, self._barrier = self._barrier, self._born

        def body(itself: relax.Var, *values: relax.Var) -> Any:
            self._written[function] = itself
            try:
                scope = self._scope(function, [nested_of(v) for v in values])
                return self._tail(function.function.body, scope, function.name)
            finally:
                del self._written[function]

        body.__name__ = _identifier(function.name)
        with span_scope(span):
            itself = recursive(body, params, result)
        self._barrier = barrier
        return self.emit(relax.Call(itself, tuple(operands)))

    def _tail(self, expr: Any, scope: Scope, name: str) -> relax.Expr:
        """What a recursive function gives: calls and branches in tail position are seen to be such."""
        while isinstance(expr, Let) and scope.find(expr) is None:
            self._bind(expr, scope)
            expr = expr.body
        if scope.find(expr) is None and isinstance(expr, If):
            condition = self._condition(expr, scope)
            if isinstance(condition, bool):
                return self._tail(expr.true_branch if condition else expr.false_branch, scope, name)
            bodies = []
            for taken, branch in ((True, expr.true_branch), (False, expr.false_branch)):
                mark = len(self._writes)
                with self.builder.inner():
                    bodies.append(self.builder.finish(self._tail(branch, scope.branch(expr, taken), name)))
                self._undo(mark)
            with span_scope(expr.span):
                return self.builder.emit(relax.If(condition, *bodies))
        if scope.find(expr) is None and isinstance(expr, Call) and not isinstance(expr.op, (ir.Op, Constructor)):
            function = self.value(expr.op, scope)
            known = self._written.get(function)
            if known is not None:
                operands = tuple([to_graph(self.value(a, scope), f"an argument of {name}") for a in expr.args])
                with span_scope(expr.span):
                    return self.builder.emit(relax.Call(known, operands))
        return to_graph(self.value(expr, scope), f"the result of {name}", getattr(expr, "span", None))

    def _result_of(self, function: StagedFunction, span: Any) -> StructInfo:
        """The type of what a recursive function gives: its declaration, or what inference found."""
        declared: Type | None = function.function.ret_type
        found = function.function.checked_type_
        if declared is None and isinstance(found, FuncType):
            declared = found.ret_type
        if declared is None:
            hint = "declare it, relay.Function(params, body, ret_type), or infer it: relay.transform.InferType()"
            raise UnknownType(f"recursion: the type of what {function.name} gives is not known", span=span, hint=hint)
        try:
            return info_of(declared)
        except UserError as error:
            message = f"recursion: {function.name} calls itself, and gives {declared}"
            raise NotDataflow(message, span=span or function.function.span, hint=HINT) from error

    def global_function(self, name: str, span: Any = None) -> StagedFunction:
        """A function of the module."""
        found = self._globals.get(name)
        if found is None:
            function = self.module[name]
            if not isinstance(function, Function):
                raise UserError(f"@{name} is no function of relay: {type(function).__name__}", span=span)
            known = calls_itself(self.module, name)
            found = self._globals[name] = StagedFunction(function, None, Uses(function), f"@{name}", known)
        return found

    # ---- expressions

    def value(self, expr: Any, scope: Scope) -> Any:
        """The value of an expression; each node once in a scope."""
        chain = []
        found = scope.find(expr)
        while found is None and isinstance(expr, Let):
            chain.append(expr)
            if isinstance(expr.value, If) and scope.find(expr.value) is None:
                found = self._chosen(expr, scope)
            else:
                self._bind(expr, scope)
            if found is None:
                expr = expr.body
                found = scope.find(expr)
        if found is None:
            scope.check_once(expr)
            before = self._effects
            found = self._compute(expr, scope)
            if self._effects != before:
                scope.effects[expr] = scope.branches
            scope.values[expr] = found
        for let in chain:
            scope.values[let] = found
        return found

    def _bind(self, let: Let, scope: Scope) -> None:
        function = let.value
        if isinstance(function, Function) and scope.find(function) is None:
            known = let.variable in free_variables(function)
            made = self._closure(function, scope, f"%{let.variable.name}", known)
            scope.values[let.variable] = scope.values[function] = made
        else:
            scope.values[let.variable] = self.value(function, scope)

    def _closure(self, function: Function, scope: Scope, name: str, recursive: bool) -> StagedFunction:
        for node in scope.uses.shared.get(function, ()):
            if scope.find(node) is None and all(scope.find(v) is not None for v in free_variables(node)):
                self.value(node, scope)
        return StagedFunction(function, scope, scope.uses, name, recursive)

    def _compute(self, expr: Any, scope: Scope) -> Any:
        if isinstance(expr, Constant):
            return relax.Constant(np.asarray(expr.data))
        if isinstance(expr, Var):
            if expr in self.aliases:
                return self.value(self.aliases[expr], scope)
            hint = "bind it by let, or make it a parameter"
            raise UserError(f"variable %{expr.name} is not bound", span=expr.span, hint=hint)
        if isinstance(expr, GlobalVar):
            return self.global_function(expr.name, expr.span)
        if isinstance(expr, (ir.Op, Constructor)):
            return expr
        if isinstance(expr, Tuple):
            return tuple([self.value(f, scope) for f in expr.fields])
        if isinstance(expr, TupleGetItem):
            return self._item(expr, scope)
        if isinstance(expr, Call):
            return self._call(expr, scope)
        if isinstance(expr, If):
            return self._if(expr, scope)
        if isinstance(expr, Function):
            return self._closure(expr, scope, "the function", False)
        if isinstance(expr, Match):
            return self._match(expr, scope)
        if isinstance(expr, RefCreate):
            value = self.value(expr.value, scope)
            self._effects += 1
            self._born += 1
            return StagedRef(value, self._born)
        if isinstance(expr, RefRead):
            self._effects += 1
            content = self._ref(expr.ref, scope, expr.span).value
            if isinstance(content, Undecided):
                raise Unjoinable(content.message, span=content.span, hint=HINT)
            return content
        if isinstance(expr, RefWrite):
            ref, value = self._ref(expr.ref, scope, expr.span), self.value(expr.value, scope)
            self._effects += 1
            self._write(ref, value, expr.span)
            return ()
        raise InternalError(f"relay has no {type(expr).__name__}")

    def _ref(self, expr: Any, scope: Scope, span: Any) -> StagedRef:
        found = self.value(expr, scope)
        if not isinstance(found, StagedRef):
            raise NotDataflow(f"reference: {_kind(found)} is used as one", span=span, hint=HINT)
        return found

    def _write(self, ref: StagedRef, value: Any, span: Any) -> None:
        if ref.born <= self._barrier:
            message = "reference: a function that calls itself writes to one that was made outside of it"
            raise NotDataflow(message, span=span, hint=HINT)
        self._writes.append((ref, ref.value))
        ref.value = value

    def _undo(self, mark: int) -> dict[StagedRef, Any]:
        """Take back what was written since the mark; what the references held then."""
        now = {ref: ref.value for ref, _ in self._writes[mark:]}
        for ref, before in reversed(self._writes[mark:]):
            ref.value = before
        del self._writes[mark:]
        return now

    def _item(self, expr: TupleGetItem, scope: Scope) -> Any:
        whole = self.value(expr.tuple_value, scope)
        if not isinstance(whole, tuple) or not 0 <= expr.index < len(whole):
            raise UserError(f"there is no field {expr.index} of {_kind(whole)}", span=expr.span)
        return whole[expr.index]

    def _call(self, call: Call, scope: Scope) -> Any:
        if isinstance(call.op, (ir.Op, Constructor)):
            return self._primitive(call.op, [self.value(a, scope) for a in call.args], call.attrs, call.span)
        function = self.value(call.op, scope)
        return self.apply(function, [self.value(a, scope) for a in call.args], call.span)

    def _primitive(self, op: Any, arguments: Sequence[Any], attrs: Any, span: Any) -> Any:
        if isinstance(op, Constructor):
            return Data(op.tag, arguments, op)
        attrs = complete_attrs(op, attrs)
        if op.lower is None:
            return self._operator_of_values(op, arguments, attrs, span)
        operands = [to_graph(a, f"an argument of {op.name}", span) for a in arguments]
        with span_scope(span):
            folded = self._folded(op, arguments, attrs)
            return self.emit(lower_call(op, operands, attrs)) if folded is None else folded

    def _folded(self, op: Op, arguments: Sequence[Any], attrs: Attrs) -> relax.Constant | None:
        """The result of an operator of small integers that are known: of shapes, counters and conditions."""
        values = [known_value(a) for a in arguments]
        if not values or op.stateful or not all(map(_is_small, values)):
            return None
        found = value_of_operator(op, values, [type_of_value(v) for v in values], attrs)
        return relax.Constant(found) if _is_small(found) else None

    def _operator_of_values(self, op: Op, arguments: Sequence[Any], attrs: Attrs, span: Any) -> Any:
        """The result of an operator that takes as an argument what another has as an attribute."""
        values = [known_value(a) for a in arguments]
        if op.numpy is not None and all(v is not None for v in values):
            return _constants(op.numpy(values, attrs))
        found = resolve(op, values, attrs)
        if found is None:
            message = f"{op.name}: the shape of its result depends on values that only running tells"
            raise NotDataflow(message, span=span, hint=HINT)
        other, kept, static_attrs = found
        return self._primitive(other, [arguments[k] for k in kept], static_attrs, span)

    def emit(self, expr: relax.Expr) -> Any:
        """A graph expression as a value: a variable that it is bound to, or a tuple of such."""
        if isinstance(expr, relax.Tuple):
            return tuple([self.emit(f) for f in expr.fields])
        if not isinstance(expr, (relax.Var, relax.Constant)):
            expr = self.builder.emit(expr)
        if not isinstance(expr.struct_info, TupleStructInfo):
            return expr
        fields = range(len(expr.struct_info.fields))
        return tuple([self.emit(self.builder.bound(relax.TupleGetItem(expr, k))) for k in fields])

    # ---- branches

    def _condition(self, expr: If, scope: Scope) -> Any:
        """The condition of an if: a bool where it is known, else a graph value."""
        condition = self.value(expr.cond, scope)
        if isinstance(condition, relax.Constant) and condition.data.size == 1:
            return bool(condition.data.item())
        if not isinstance(condition, relax.Expr):
            raise NotDataflow(f"the condition of an if is {_kind(condition)}", span=expr.span, hint=HINT)
        if getattr(condition.struct_info, "ndim", 0):
            condition = self.builder.emit(ops.reshape(condition, ()))
        return condition

    def _if(self, expr: If, scope: Scope) -> Any:
        condition = self._condition(expr, scope)
        if isinstance(condition, bool):
            return self.value(expr.true_branch if condition else expr.false_branch, scope)
        return self._either(expr, condition, scope, self.value)

    def _chosen(self, let: Let, scope: Scope) -> Any:
        """Binds an if. Where its branches give functions, references or data, of which running chooses one, what comes
        after it is part of each branch; the value of that, else None."""
        choice: Any = let.value
        effects = dict(scope.effects)
        try:
            self._bind(let, scope)
            return None
        except Unjoinable:
            self.copies_left -= 1
            if self.copies_left < 0:
                raise
        scope.effects.clear()
        scope.effects.update(effects)

        def rest(branch: Any, inside: Scope) -> Any:
            inside.values[choice] = inside.values[let.variable] = self.value(branch, inside)
            return self.value(let.body, inside)

        return self._either(choice, self._condition(choice, scope), scope, rest, last=True)

    def _either(
        self,
        expr: If,
        condition: relax.Expr,
        scope: Scope,
        value_of: Callable[[Any, Scope], Any],
        last: bool = False,
    ) -> Any:
        """What ``value_of`` gives of the branch that running chooses, with what the branches write to references.
        ``last``: what references hold after it is probably not needed, and may be undecided."""
        blocks, values, writes = [], [], []
        for taken, branch in ((True, expr.true_branch), (False, expr.false_branch)):
            mark, born = len(self._writes), self._born
            with self.builder.inner():
                values.append(value_of(branch, scope.branch(expr, taken)))
                blocks.append(self.builder.finish(relax.Tuple(())).blocks)
            writes.append({ref: now for ref, now in self._undo(mark).items() if ref.born <= born})
        changed = list(dict.fromkeys([*writes[0], *writes[1]]))
        leaves: tuple[list[Any], list[Any]] = ([], [])
        shape = _joined(values[0], values[1], *leaves, expr.span)
        shapes = [
            _content(writes[0].get(r, r.value), writes[1].get(r, r.value), *leaves, expr.span, last) for r in changed
        ]
        single = len(leaves[0]) == 1
        outputs = [v[0] if single else relax.Tuple(tuple(v)) for v in leaves]
        bodies = [relax.SeqExpr(b, output) for b, output in zip(blocks, outputs, strict=True)]
        with span_scope(expr.span):
            results = self.emit(relax.If(condition, *bodies))
        rest = iter((results,) if single else results)
        value = shape(rest)
        for ref, content in zip(changed, shapes, strict=True):
            self._write(ref, content(rest), expr.span)
        return value

    def _match(self, expr: Match, scope: Scope) -> Any:
        data = self.value(expr.data, scope)
        for clause in expr.clauses:
            if _matches(clause.lhs, data, scope.values):
                return self.value(clause.rhs, scope)
        if isinstance(data, relax.Expr):
            raise NotDataflow("match: the data is not known when the program is compiled", span=expr.span, hint=HINT)
        raise UserError(f"no clause of the match takes {_kind(data)}", span=expr.span)


def _matches(pattern: Pattern, value: Any, binds: dict[Any, Any]) -> bool:
    if isinstance(pattern, PatternVar):
        binds[pattern.var] = value
        return True
    if isinstance(pattern, PatternTuple):
        return isinstance(value, tuple) and all(
            _matches(p, v, binds) for p, v in zip(pattern.patterns, value, strict=True)
        )
    if isinstance(pattern, PatternConstructor):
        if not isinstance(value, Data) or value.tag != pattern.constructor.tag:
            return False
        return all(_matches(p, v, binds) for p, v in zip(pattern.patterns, value.fields, strict=False))
    return True


class Undecided:
    """What a reference holds after branches that cannot be joined: to read it is an error."""

    __slots__ = ("message", "span")

    def __init__(self, error: Unjoinable) -> None:
        self.message, self.span = error.message, error.span


def _content(one: Any, two: Any, ones: list[Any], twos: list[Any], span: Any, last: bool) -> Callable[[Any], Any]:
    """:func:`_joined` of what a reference holds; with ``last`` it may be undecided."""
    own: tuple[list[Any], list[Any]] = ([], [])
    try:
        shape = _joined(one, two, *own, span)
    except Unjoinable as error:
        if not last:
            raise
        undecided = Undecided(error)
        return lambda results: undecided
    ones += own[0]
    twos += own[1]
    return shape


def _joined(one: Any, two: Any, ones: list[Any], twos: list[Any], span: Any) -> Callable[[Any], Any]:
    """The leaves of what two branches give, and a function that puts the results back in their places."""
    if isinstance(one, tuple) and isinstance(two, tuple) and len(one) == len(two):
        parts = [_joined(a, b, ones, twos, span) for a, b in zip(one, two, strict=True)]
        return lambda results: tuple([part(results) for part in parts])
    if isinstance(one, Data) and isinstance(two, Data) and one.tag == two.tag:
        fields = _joined(tuple(one.fields), tuple(two.fields), ones, twos, span)
        tag, constructor = one.tag, one.constructor
        return lambda results: Data(tag, fields(results), constructor)
    if isinstance(one, relax.Expr) and isinstance(two, relax.Expr):
        if one is two and isinstance(one, relax.Constant):
            return lambda results: one
        ones.append(one)
        twos.append(two)
        return next
    if one is two:
        return lambda results: one
    odd = next((v for v in (one, two) if not isinstance(v, (relax.Expr, tuple))), one)
    message = f"{_construct(odd)}: the branches of an if choose one of two, by the value of a tensor"
    raise Unjoinable(message, span=span, hint=HINT)


def _construct(value: Any) -> str:
    if isinstance(value, StagedRef):
        return "reference"
    return "data type" if isinstance(value, Data) else "closure"


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)} values"
    if isinstance(value, relax.Expr):
        return format_info(value.struct_info)
    if isinstance(value, Data):
        return f"a value of constructor {value.constructor.name}" if value.constructor is not None else "data"
    return "a reference" if isinstance(value, StagedRef) else "a function"


def is_graph_value(value: Any) -> bool:
    """Whether it is a tensor, or tuples of such."""
    return all(map(is_graph_value, value)) if isinstance(value, tuple) else isinstance(value, relax.Expr)


def known_value(value: Any) -> Any:
    """The arrays of a value that is constant; None where it is not."""
    if isinstance(value, tuple):
        fields = tuple(map(known_value, value))
        return None if any(f is None for f in fields) else fields
    return value.data if isinstance(value, relax.Constant) else None


def _constants(value: Any) -> Any:
    return tuple(map(_constants, value)) if isinstance(value, tuple) else relax.Constant(np.asarray(value))


def _is_small(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_small, value))
    return value is not None and value.size <= MOST_FOLDED and value.dtype.kind in "biu"


def to_graph(value: Any, what: str = "a value", span: Any = None) -> relax.Expr:
    """A value as a graph expression.

    Raises NotDataflow where it is none.
    """
    if isinstance(value, tuple):
        return relax.Tuple(tuple([to_graph(v, what, span) for v in value]))
    if not isinstance(value, relax.Expr):
        raise NotDataflow(f"{_construct(value)}: {what} is {_kind(value)}, no tensor", span=span, hint=HINT)
    return value


def nested_of(expr: relax.Expr) -> Any:
    """A graph expression as a value: its fields in a tuple, where it is one."""
    if isinstance(expr.struct_info, TupleStructInfo):
        return tuple([nested_of(relax.TupleGetItem(expr, k)) for k in range(len(expr.struct_info.fields))])
    return expr


def calls_itself(module: IRModule, name: str) -> bool:
    """Whether a function of the module names itself, or others that name it."""
    from pullback.relay.evaluate.graph import postorder

    seen: set[str] = set()
    waiting = [name]
    while waiting:
        function = module.functions.get(waiting.pop())
        for node in postorder(function) if isinstance(function, Function) else ():
            if isinstance(node, GlobalVar):
                if node.name == name:
                    return True
                if node.name not in seen:
                    seen.add(node.name)
                    waiting.append(node.name)
    return False


def _identifier(name: str) -> str:
    kept = "".join(c if c.isalnum() or c == "_" else "_" for c in name.lstrip("@%"))
    return kept if kept.isidentifier() else "function"
