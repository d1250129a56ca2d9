"""Loops, and calls with a gradient of their own, in their closed form."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pullback.ir.errors import UserError
from pullback.relax.analysis import free_vars
from pullback.relax.control import FORI, SCAN, STEP, WHILE, custom, loop, row, scan_length, with_floats
from pullback.relax.expr import Call, Constant, Expr, Function, PrimValue, Tuple, TupleGetItem, Var
from pullback.relax.op_calls import fields_of_tuple, op_of
from pullback.relax.struct_info import TensorStructInfo, format_info
from pullback.relax.transform.closed_form import (
    Known,
    closed,
    items_of,
    leaves_of,
    name_of,
    nested_value,
    scalar_function,
)

if TYPE_CHECKING:
    from pullback.relax.transform.inline_functions import Inliner


def closed_loop(inliner: Inliner, call: Call) -> Expr:
    """A loop in its closed form: its carries, and of a scan the stacked outputs."""
    return _Closing(inliner, call).write()


class _Closing:
    def __init__(self, inliner: Inliner, call: Call) -> None:
        self.inliner, self.call, self.builder = inliner, call, inliner.builder
        self.attrs = attrs = inliner.bound_attrs(call)
        op = call.op
        self.count: Expr | None = None
        self.condition: Known | None = None
        xs: Expr = Tuple(())
        if op is WHILE:
            asked, function, carries = call.args
            self.condition, self.length = inliner.callee(asked), attrs["max_steps"]
        elif op is FORI:
            number, function, carries = call.args
            self.count, self.length = _count(inliner.expr(number), attrs["max_steps"])
        else:
            function, carries, xs = call.args
            xs = inliner.expr(xs)
            self.length = scan_length([x.struct_info for x in fields_of_tuple(xs)], attrs["length"])
        self.xs = fields_of_tuple(xs)
        self.carries, self.known = inliner.expr(carries), inliner.callee(function)
        self.flat = leaves_of(self.carries)
        for value in self.flat:
            if not isinstance(value.struct_info, TensorStructInfo):
                message = f"a carry of {op_of(call).short} is {format_info(value.struct_info)}"
                raise UserError(message, span=call.span, hint="carries are tensors, and tuples of tensors")

    def write(self) -> Expr:
        asked = [] if self.condition is None else [scalar_function(self.asked(self.condition))]
        functions = [self.body(), *asked]
        found, invariants = closed(functions, self.builder)
        result = loop(
            self.count, self.flat, self.xs, invariants, found[0], found[1] if self.condition is not None else None,
            self.length, self.attrs.get("reverse", False), self.attrs["checkpoint_every"],
        )  # fmt: skip
        emit = self.builder.emit
        whole = emit(result, "looped")
        (kept, stacks) = (emit(TupleGetItem(whole, k), n) for k, n in enumerate(("carries", "stacked")))
        after = nested_value(self.carries.struct_info, items_of(kept), self.builder)
        return Tuple((after, Tuple(tuple(items_of(stacks))))) if self.call.op is SCAN else after

    def variables(self) -> tuple[Var, list[Var], list[Var]]:
        rows = [Var(f"row_{k}", row(x.struct_info)) for k, x in enumerate(self.xs)]
        return Var("step", STEP), [Var(name_of(v), v.struct_info) for v in self.flat], rows

    def asked(self, condition: Known) -> Function:
        """What says whether there is one more step."""
        step, values, _ = self.variables()
        arguments = nested_value(self.carries.struct_info, values, self.builder).fields
        call = self.inliner.call
        return self.inliner.region([step, *values], lambda: call(condition, arguments, self.call))

    def body(self) -> Function:
        step, values, rows = self.variables()
        arguments = [
            *([step] if self.call.op is FORI else []),
            *nested_value(self.carries.struct_info, values, self.builder).fields,
            *rows,
        ]

        def emit() -> tuple[Expr, ...]:
            result = self.inliner.call(self.known, arguments, self.call)
            return tuple(result) if self.call.op is SCAN else (result, Tuple(()))

        return self.inliner.region([step, *values, *rows], emit)


def _count(number: Expr, most: int | None) -> tuple[Expr | None, Any]:
    """The count and the length of a fori_loop."""
    if isinstance(number, PrimValue):
        return None, number.value
    if isinstance(number, Constant):
        return None, max(0, int(number.data))
    return number, most


def closed_custom(inliner: Inliner, call: Call) -> Expr:
    """A call with a gradient of its own in its closed form."""
    function, adjoint = (inliner.callee(f) for f in call.args[:2])
    operands = leaves_of(inliner.expr(call.args[2]))
    results = leaves_of(Var("result", call.struct_info))
    seeds = with_floats([r.struct_info for r in results])
    regions = []
    parts: Sequence[Any] = (("function", function, []), ("adjoint", adjoint, seeds))
    for what, known, more in parts:
        params = [Var(name_of(v), v.struct_info) for v in operands]
        params += [Var(f"adjoint_{k}", info) for k, info in enumerate(more)]
        region = inliner.region(params, partial(inliner.call, known, params, call))
        outer = free_vars(region)
        if outer:
            raise UserError(
                f"custom_gradient: {what} reads {outer[0].name}, which is around it and would get no gradient",
                span=call.span,
                hint="make it an operand",
            )
        regions.append(region)
    result = inliner.builder.emit(custom(operands, *regions), "result")
    return nested_value(call.struct_info, items_of(result), inliner.builder)
