"""Rewriting a program in which some calls get other layouts: the others follow, as far as they can.

A value that has another layout than it had is *altered*: whoever can takes it as it is, and is altered too; for the
others it is transformed back, once.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from pullback.ir.errors import UserError
from pullback.relay.attrs import Attrs
from pullback.relay.expr import Call, Constant, Expr, Tuple, TupleGetItem, TupleWrapper, call_op
from pullback.relay.op.registry import Op
from pullback.relay.transform.layout_rules import infer
from pullback.relay.transform.layouts import Layout, expanded, primal
from pullback.relay.transform.parts import tensor_type
from pullback.relay.ty import TensorType, TupleType
from pullback.relay.visitor import ExprMutator


@dataclass(frozen=True, eq=False)
class Altered(Expr):
    """A value in the layout ``new`` that was in ``old``."""

    value: Expr
    old: Layout
    new: Layout


class LayoutRewriter(ExprMutator):
    """:meth:`altered` says what a call is to be."""

    def __init__(self) -> None:
        super().__init__()
        self.transformed: dict[Any, Expr] = {}

    @abstractmethod
    def altered(self, call: Call, args: list[Expr]) -> Any:
        """The call in other layouts, of ``args``, or None."""

    def visit(self, expr: Any) -> Any:
        return self.plain(self.raw(expr))

    def raw(self, expr: Any) -> Any:
        """The expression, which may be altered, or a tuple with fields that are."""
        return super().visit(expr)

    def plain(self, expr: Any) -> Any:
        """The expression in its old layout."""
        if isinstance(expr, Altered):
            return self.transform(expr.value, expr.new, expr.old)
        if isinstance(expr, Tuple) and any(isinstance(field, Altered) for field in expr.fields):
            if expr not in self.transformed:
                self.transformed[expr] = Tuple(tuple(self.plain(field) for field in expr.fields), span=expr.span)
            return self.transformed[expr]
        return expr

    def transform(self, value: Expr, source: Layout, target: Layout) -> Expr:
        """``value`` in another layout; axes that it lacks are of size 1."""
        if source == target or source is None or target is None:
            return value
        key = (value, source, target)
        if key not in self.transformed:
            self.transformed[key] = _transformed(value, source, target)
        return self.transformed[key]

    def visit_tuple(self, tuple_: Tuple) -> Expr:
        fields = tuple(self.raw(field) for field in tuple_.fields)
        same = all(a is b for a, b in zip(fields, tuple_.fields, strict=True))
        return tuple_ if same else Tuple(fields, span=tuple_.span)

    def visit_tuple_getitem(self, item: TupleGetItem) -> Expr:
        value = self.raw(item.tuple_value)
        if isinstance(value, Tuple):
            return value.fields[item.index]
        return item if value is item.tuple_value else TupleGetItem(value, item.index, span=item.span)

    def visit_call(self, call: Call) -> Expr:
        if not isinstance(call.op, Op):
            return super().visit_call(call)
        args = [self.raw(arg) for arg in call.args]
        found = self.rewritten(call, args)
        if found is not None:
            return found
        args = [self.plain(arg) for arg in args]
        same = all(a is b for a, b in zip(args, call.args, strict=True))
        return call if same else Call(call.op, tuple(args), call.attrs, call.type_args, span=call.span)

    def rewritten(self, call: Call, args: list[Expr]) -> Expr | None:
        """The call in new layouts; None where nothing is known of its layouts."""
        types = _flat_types(call.args)
        if types is None:
            return None
        inputs = [field for arg in args for field in (arg.fields if isinstance(arg, Tuple) else (arg,))]
        if len(inputs) != len(types):
            return None
        given_old = [arg.old if isinstance(arg, Altered) else None for arg in inputs]
        before = infer(call.op, call.attrs, None, list(given_old), types)
        if before is None:
            return None
        given_new = [
            arg.new if isinstance(arg, Altered) else old for arg, old in zip(inputs, before.inputs, strict=True)
        ]
        values = [arg.value if isinstance(arg, Altered) else arg for arg in inputs]
        new = self.altered(call, _like(args, values))
        if isinstance(new, TupleWrapper):
            new = new.astuple()
        if new is None:
            new = Call(call.op, tuple(_like(args, values)), Attrs(before.attrs), span=call.span)
        elif not isinstance(new, Call) or not isinstance(new.op, Op):
            hint = "return a call of an operator, or None to leave it as it is"
            raise UserError(f"a call of {call.op.name} can only be altered to another call", span=call.span, hint=hint)
        after = infer(new.op, new.attrs, given_new, before.inputs, types)
        if after is None or len(after.outputs) != len(before.outputs):
            return None
        given = [field for arg in new.args for field in (arg.fields if isinstance(arg, Tuple) else (arg,))]
        if not len(given) == len(inputs) == len(after.inputs):
            return None
        moved = []
        for i, value in enumerate(given):
            came, had, now, wanted = given_old[i], before.inputs[i], given_new[i], after.inputs[i]
            if came is not None and came != had:  # it is read as another layout than the one it was made in
                value, now = self.transform(value, now, came), had
            moved.append(self.transform(value, now, wanted))
        result = Call(new.op, tuple(_like(new.args, moved)), Attrs(after.attrs), new.type_args, span=call.span)
        if isinstance(call.checked_type, TupleType):
            items = [TupleGetItem(result, i) for i in range(len(after.outputs))]
            return Tuple(tuple(Altered(*each) for each in zip(items, before.outputs, after.outputs, strict=True)))
        return Altered(result, before.outputs[0], after.outputs[0])


def _flat_types(args: Any) -> list[TensorType] | None:
    """The types of arguments, those inside tuples one by one; None where there are others than tensors."""
    found: list[TensorType] = []
    for arg in args:
        known = arg.checked_type
        for each in known.fields if isinstance(known, TupleType) else (known,):
            if not isinstance(each, TensorType):
                return None
            found.append(each)
    return found


def _like(args: Any, values: list[Expr]) -> list[Expr]:
    """``values`` in the places that the parts of ``args`` have."""
    rest = iter(values)
    return [
        Tuple(tuple(next(rest) for _ in arg.fields), span=arg.span) if isinstance(arg, Tuple) else next(rest)
        for arg in args
    ]


def _transformed(value: Expr, source: str, target: str) -> Expr:
    missing = len(primal(target)) - len(primal(source))
    if missing > 0:
        known = tensor_type(value)
        if (known is not None and known.ndim == 0) or (isinstance(value, Constant) and value.data.ndim == 0):
            return value
        source = expanded(source, target)
        value = call_op("expand_dims", value, axis=0, num_newaxis=missing)
        if source == target:
            return value
    return call_op("layout_transform", value, source, target)
