"""Loops with ``checkpoint_every=s`` become loops over segments of s steps, which the gradient computes again.

    for k in range(n):            for j in range(n / s):             # saved: t at the beginning of each segment
        t = f(k, t, x[k])    →        for i in range(s):
                                          t = f(j * s + i, t, x[j * s + i])

So n / s values of a carry are saved, and s while a segment is differentiated, in the place of n; ``True`` takes √n for
s. The body of the outer loop has the attribute ``recompute``, which the gradient goes by (``loop_gradients.py``). Where
a loop may need more steps than it is allowed, both bodies have the attribute ``max_steps``: the number for the message.
Where s does not divide n, zeros are appended to xs, and the last segment is shorter. Where only running tells n, there
are no xs, and what segments begin with is kept in boxes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pullback.ir.errors import DifferentiationError
from pullback.ir.node import span_scope
from pullback.ir.op import Op
from pullback.relax.control import LOOP, STEP, loop
from pullback.relax.expr import (
    Binding,
    Call,
    DataflowVar,
    Expr,
    Function,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    const,
)
from pullback.relax.mutator import ExprMutator, emit_body
from pullback.relax.struct_info import TensorStructInfo, as_tuple, dim, fields_of
from pullback.relax.transform.joint_region import leaves
from pullback.relax.transform.region_writer import RegionWriter, item, items


def segmented(function: Function) -> Function:
    """The function with its own loops in segments, not those in regions."""
    if not any(_is_wanted(b.value) for b in function.bindings):
        return function
    return _Segment().function(function)


def _is_wanted(value: Any) -> bool:
    return isinstance(value, Call) and value.op is LOOP and value.attrs["checkpoint"] is not None


class _Segment(ExprMutator):
    def rewrite_binding(self, binding: Binding) -> None:
        if not _is_wanted(binding.value):
            super().rewrite_binding(binding)
            return
        call: Call = self.expr(binding.value)
        length, size = call.attrs["length"], call.attrs["checkpoint"]
        if size is True:
            size = _root(length, call.span or binding.span)
        if isinstance(length, int) and size >= length:  # one segment
            plain = Call(call.op, call.args, {**call.attrs, "checkpoint": None}, span=call.span)
            self.bind(binding.var, plain)
            return
        with span_scope(call.span or binding.span):
            self.bind(binding.var, _Segments(self.builder, call, size).whole(binding.var.name))

    def bind(self, var: Var, value: Expr) -> None:
        if isinstance(value, Tuple) and isinstance(var, DataflowVar):
            self.env[var] = value
        else:
            super().bind(var, value)


def _root(length: Any, span: Any) -> int:
    if isinstance(length, int):
        return math.isqrt(max(length, 1) - 1) + 1
    if length is None:
        why, other = "only running tells", "say how many there may be: max_steps=…"
    else:
        why, other = f"is not known yet: it is {length}", "bind the size first (relax.transform.BindSizes)"
    raise DifferentiationError(
        f"checkpoint_every=True takes the square root of the number of steps, which {why}",
        span=span,
        hint=f"give a number of steps: checkpoint_every=16, or {other}",
    )


class _Segments:
    """A loop over segments in the place of one over steps."""

    def __init__(self, builder: Any, call: Call, size: int) -> None:
        self.builder, self.call, self.size = builder, call, size
        self.length = call.attrs["length"]
        self.body, self.condition = call.attrs["body"], call.attrs["condition"]
        self.reverse = call.attrs["reverse"]
        count: Any = call.args[0]
        self.count = count if isinstance(count.struct_info, TensorStructInfo) else None
        self.carries, self.xs, self.invariants = map(items, call.args[1:])
        self.segments = _segments(self.length, size)
        self.rows = None if self.segments is None else dim(self.segments * size)
        self.is_even = self.length is None or (isinstance(self.length, int) and self.rows == self.length)
        may_fail = self.count is not None or self.condition is not None
        self.attrs = {"max_steps": self.length} if may_fail and self.length is not None else {}

    def whole(self, name: str) -> Tuple:
        """What the loop gives: carries, ys and steps."""
        xs = [self.blocks(x) for x in self.xs]
        total = self.count if self.count is not None else None if self.is_even else self.known_length()
        carries: list[Any] = [*self.carries, *([_number(0)] if self.condition is not None else [])]
        invariants: list[Any] = [*self.invariants, *([] if total is None else [total])]
        body, condition = self.outer(xs, carries, invariants), self.asked(carries, invariants)
        count = self.outer_count()
        outer = loop(count, carries, xs, invariants, body, condition, self.segments, self.reverse)
        result = self.builder.emit(outer, name)
        kept = [item(result, 0, k) for k in range(len(carries))]
        ys = [
            self.unblocked(item(result, 1, k)) for k in range(len(fields_of(as_tuple(self.call.struct_info).fields[1])))
        ]
        steps = kept.pop() if self.condition is not None else self.steps()
        return Tuple((Tuple(tuple(kept)), Tuple(tuple(ys)), steps))

    def known_length(self) -> Expr:
        if isinstance(self.length, int):
            return _number(self.length)
        return self.builder.emit(Op.get("reshape")(Op.get("shape_to_tensor")(ShapeExpr((self.length,))), ()))

    def steps(self) -> Expr:
        return self.known_length() if self.count is None else self.builder.emit(_op("maximum", self.count, _number(0)))

    def outer_count(self) -> Expr | None:
        """How many segments there are, one too many where there are too many steps."""
        if self.count is None:
            return None
        full = _op("floor_divide", _op("add", self.count, _number(self.size - 1)), _number(self.size))
        if self.length is None:
            return self.builder.emit(full)
        limit = self.known_length()
        too_many = _op("floor_divide", _op("add", limit, _number(2 * self.size - 1)), _number(self.size))
        return self.builder.emit(_op("where", _op("greater", self.count, limit), too_many, full))

    # -- rows

    def blocks(self, x: Any) -> Expr:
        """The rows of each segment together."""
        shape = x.struct_info.shape
        if not self.is_even:
            more = Op.get("zeros")((dim(self.rows - self.length), *shape[1:]), x.struct_info.dtype)
            x = Op.get("concat")([x, more], axis=0)
        return self.builder.emit(Op.get("reshape")(x, (self.segments, self.size, *shape[1:])))

    def unblocked(self, y: Any) -> Expr:
        rows = Op.get("reshape")(y, (self.rows, *y.struct_info.shape[2:]))
        if not self.is_even:
            rows = Op.get("strided_slice")(rows, axes=(0,), begin=(0,), end=(self.length,))
        return self.builder.emit(rows)

    # -- regions

    def asked(self, carries: Sequence[Expr], invariants: Sequence[Expr]) -> Function | None:
        """The condition of the outer loop: that of the first step of a segment."""
        if self.condition is None:
            return None
        writer = RegionWriter()
        number = writer.param(_STEP, "segment")
        values, constants = _params(writer, carries), _params(writer, invariants)
        with writer.builder.dataflow():
            first = writer.builder.emit(_op("multiply", number, _number(self.size)), "first")
            given = [first, *values[: len(self.carries)], *constants[: len(self.invariants)]]
            result = writer.outputs([_emitted(self.condition, given, writer)])
        return writer.function(result.fields[0], {})

    def outer(self, xs: Sequence[Expr], carries: Sequence[Expr], invariants: Sequence[Expr]) -> Function:
        """One segment."""
        writer = RegionWriter()
        number = writer.param(_STEP, "segment")
        values = _params(writer, carries)
        rows = [writer.param(Var("rows", _row(x))) for x in xs]
        constants = _params(writer, invariants)
        with writer.builder.dataflow():
            first = writer.builder.emit(_op("multiply", number, _number(self.size)), "first")
            count = None
            if len(invariants) > len(self.invariants):  # the number of all steps
                count = writer.builder.emit(_op("minimum", _op("subtract", constants.pop(), first), _number(self.size)))
            inner = loop(
                count, values[: len(self.carries)], rows, [*constants, first], self.inner(), self.going_on(), self.size,
                self.reverse,
            )  # fmt: skip
            result = writer.builder.emit(inner, "segment")
            kept = [item(result, 0, k) for k in range(len(self.carries))]
            if self.condition is not None:
                kept.append(_op("add", values[-1], item(result, 2)))
            ys = items(TupleGetItem(result, 1))
            results = Tuple((writer.outputs(kept), writer.outputs(ys)))
        return writer.function(results, {**self.attrs, "recompute": True})

    def inner(self) -> Function:
        """One step, whose number in all the last parameter helps to say."""
        writer = RegionWriter()
        values = [writer.param(p) for p in self.body.params]
        first = writer.param(_STEP, "first")
        with writer.builder.dataflow():
            values[0] = writer.builder.emit(_op("add", first, values[0]), values[0].name)
            found = leaves(_emitted(self.body, values, writer))
            count = len(self.carries)
            results = Tuple((writer.outputs(found[:count]), writer.outputs(found[count:])))
        return writer.function(results, {**self.body.attrs, **self.attrs})

    def going_on(self) -> Function | None:
        """The condition of a step: as long as the segment lasts."""
        if self.condition is None:
            return None
        writer = RegionWriter()
        values = [writer.param(p) for p in self.condition.params]
        first = writer.param(_STEP, "first")
        with writer.builder.dataflow():
            is_inside = _op("less", values[0], _number(self.size))
            values[0] = writer.builder.emit(_op("add", first, values[0]), values[0].name)
            result = writer.outputs([_op("logical_and", is_inside, _emitted(self.condition, values, writer))])
        return writer.function(result.fields[0], {})


_STEP = Var("step", STEP)


def _segments(length: Any, size: int) -> Any:
    """How many segments there are; None: only running tells."""
    if length is None or isinstance(length, int):
        return None if length is None else -(-length // size)
    return dim((length + size - 1) // size)


def _params(writer: RegionWriter, values: Sequence[Expr]) -> list[Var]:
    return [writer.param(v, getattr(v, "name", "value")) for v in values]


def _emitted(region: Function, arguments: Sequence[Expr], writer: RegionWriter) -> Expr:
    return emit_body(region, dict(zip(region.params, arguments, strict=True)), writer.builder)


def _row(x: Expr) -> TensorStructInfo:
    return TensorStructInfo(x.shape[1:], x.dtype)


def _number(value: int) -> Expr:
    return const(value, "int64")


def _op(name: str, *args: Any) -> Expr:
    return Op.get(name)(*args)
