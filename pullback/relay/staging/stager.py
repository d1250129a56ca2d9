"""The evaluator of graph values."""

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
from pullback.relax.struct_info import StructInfo, TupleStructInfo
from pullback.relay.adt import Constructor, Match, Pattern, PatternConstructor, PatternTuple, PatternVar
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
from pullback.relay.staging.branches import Undecided, joined, joined_content
from pullback.relay.staging.calls import calls_itself
from pullback.relay.staging.errors import HINT, NotDataflow, Unjoinable, UnknownType
from pullback.relay.staging.scope import Scope
from pullback.relay.staging.values import (
    StagedFunction,
    StagedRef,
    constants,
    is_graph_value,
    is_small,
    kind_of,
    known_value,
    nested_of,
    to_graph,
)
from pullback.relay.ty import FuncType, Type

MOST_UNROLLED = 10_000  # calls of one function inside of one another
MOST_COPIES = 64  # of what comes after branches


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
            raise NotDataflow(f"{kind_of(function)} is called, which is no function", span=span)
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
            raise NotDataflow(f"reference: {kind_of(found)} is used as one", span=span, hint=HINT)
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
            raise UserError(f"there is no field {expr.index} of {kind_of(whole)}", span=expr.span)
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
        if not values or op.stateful or not all(map(is_small, values)):
            return None
        found = value_of_operator(op, values, [type_of_value(v) for v in values], attrs)
        return relax.Constant(found) if is_small(found) else None

    def _operator_of_values(self, op: Op, arguments: Sequence[Any], attrs: Attrs, span: Any) -> Any:
        """The result of an operator that takes as an argument what another has as an attribute."""
        values = [known_value(a) for a in arguments]
        if op.numpy is not None and all(v is not None for v in values):
            return constants(op.numpy(values, attrs))
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
            raise NotDataflow(f"the condition of an if is {kind_of(condition)}", span=expr.span, hint=HINT)
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
        shape = joined(values[0], values[1], *leaves, expr.span)
        shapes = [
            joined_content(writes[0].get(r, r.value), writes[1].get(r, r.value), *leaves, expr.span, last)
            for r in changed
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
            if matches(clause.lhs, data, scope.values):
                return self.value(clause.rhs, scope)
        if isinstance(data, relax.Expr):
            raise NotDataflow("match: the data is not known when the program is compiled", span=expr.span, hint=HINT)
        raise UserError(f"no clause of the match takes {kind_of(data)}", span=expr.span)


def matches(pattern: Pattern, value: Any, binds: dict[Any, Any]) -> bool:
    if isinstance(pattern, PatternVar):
        binds[pattern.var] = value
        return True
    if isinstance(pattern, PatternTuple):
        return isinstance(value, tuple) and all(
            matches(p, v, binds) for p, v in zip(pattern.patterns, value, strict=True)
        )
    if isinstance(pattern, PatternConstructor):
        if not isinstance(value, Data) or value.tag != pattern.constructor.tag:
            return False
        return all(matches(p, v, binds) for p, v in zip(pattern.patterns, value.fields, strict=False))
    return True


def _identifier(name: str) -> str:
    kept = "".join(c if c.isalnum() or c == "_" else "_" for c in name.lstrip("@%"))
    return kept if kept.isidentifier() else "function"
