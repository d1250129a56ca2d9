"""Simplify: identities of arithmetic and of shape ops that hold exactly, bit for bit.

    multiply(x, 1) → x          divide(x, 1) → x            subtract(x, 0) → x
    astype(astype(x, wider), dtype) → astype(x, dtype)      of floats
    strided_slice(strided_slice(x, …), …) → strided_slice(x, …), and x where that takes all of it
    permute_dims(permute_dims(x, …), …) → x                 where the one undoes the other
    broadcast_to(x, x.shape) → x, and the same for reshape, permute_dims, astype, collapse_sum_to that change nothing

``ones`` and ``zeros`` count as the constants they are, when their shape makes no difference. ``add(x, 0)`` and
``subtract(x, -0.0)`` are left alone: they turn -0.0 into 0.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.ir.passes import FunctionPass
from pullback.relax.expr import Call, Constant, Expr, Function, Var
from pullback.relax.mutator import ExprMutator
from pullback.relax.op_calls import is_op, op_of
from pullback.relax.struct_info import TensorStructInfo, as_tensor, same_info
from pullback.relax.transform.dead_code_elimination import remove_dead_bindings

_IDENTITY_IF_SAME_TYPE = ("broadcast_to", "reshape", "astype", "collapse_sum_to", "collapse_sum_like", "flatten")
_KEEP_ELEMENTS = ("broadcast_to", "reshape", "expand_dims", "squeeze", "flatten", "permute_dims")
_NEUTRAL_RIGHT = {"multiply": 1, "divide": 1, "subtract": 0, "power": 1}
_NEUTRAL_LEFT = {"multiply": 1}
# The floats that hold every value of a float.
_HOLDS = {"bfloat16": ("float32", "float64"), "float16": ("float32", "float64"), "float32": ("float64",)}


@dataclass(frozen=True)
class Simplify(FunctionPass):
    """Apply the identities until nothing changes in one forward sweep.

    Checks: the type stays, and the value, bit for bit. Slices of slices go forwards through sizes that are known.
    """

    def function(self, function: Function, module: IRModule) -> Function:
        return remove_dead_bindings(_Simplify().function(function))


class _Simplify(ExprMutator):
    def rewrite_call(self, call: Call) -> Expr:
        if not isinstance(call.op, Op):
            return call
        if call.op.short == "astype":
            call = self.direct_cast(call)
        name = op_of(call).short
        if name == "strided_slice":
            call = self.direct_slice(call)
            if same_info(call.args[0].struct_info, call.struct_info) and _taken(call) is not None:
                return call.args[0]
        args = call.args
        if name in _IDENTITY_IF_SAME_TYPE and same_info(args[0].struct_info, call.struct_info):
            return args[0]
        if name == "permute_dims":
            if _is_identity(call):
                return args[0]
            inner = self.builder.lookup(args[0]) if isinstance(args[0], Var) else None
            if is_op(inner, "permute_dims") and [_order(inner)[a] for a in _order(call)] == sorted(_order(call)):
                return inner.args[0]
        for neutral, kept, table in ((1, 0, _NEUTRAL_RIGHT), (0, 1, _NEUTRAL_LEFT)):
            is_neutral = name in table and self.is_filled(args[neutral], table[name])
            if is_neutral and same_info(args[kept].struct_info, call.struct_info):
                return args[kept]
        return call

    def direct_cast(self, call: Call) -> Call:
        """The cast of what was cast to a wider float before, which changed no value, from where it came."""
        source = call.args[0]
        value = self.builder.lookup(source) if isinstance(source, Var) else None
        if not is_op(value, "astype"):
            return call
        origin = value.args[0]
        if value.dtype not in _HOLDS.get(origin.dtype, ()):
            return call
        return Call(call.op, (origin,), call.attrs, span=call.span)

    def direct_slice(self, call: Call) -> Call:
        """The slice of a slice, from where that came; only of those that go forwards through known sizes."""
        source = call.args[0]
        value = self.builder.lookup(source) if isinstance(source, Var) else None
        if not is_op(value, "strided_slice"):
            return call
        inner = _taken(value)
        outer = _taken(call) if inner is not None else None
        if inner is None or outer is None:
            return call
        origin = value.args[0]
        taken = [first[then.start : then.stop : then.step] for first, then in zip(inner, outer, strict=True)]
        axes = [k for k, size in enumerate(as_tensor(origin.struct_info).static_shape) if taken[k] != range(size)]
        begin, end, strides = ([getattr(taken[k], part) for k in axes] for part in ("start", "stop", "step"))
        return op_of(call)(origin, axes, begin, end, strides if any(s != 1 for s in strides) else None)

    def is_filled(self, expr: Any, number: int) -> bool:
        """Whether every element of the value is ``number``, and not -0.0."""
        value = self.builder.lookup(expr) if isinstance(expr, Var) else expr
        if isinstance(value, Constant):
            return bool(value.data.size) and _are_all(value.data, number)
        if not isinstance(value, Call) or not isinstance(value.op, Op):
            return False
        if value.op.short in _KEEP_ELEMENTS:
            return self.is_filled(value.args[0], number)
        if value.op.short in ("full", "full_like") and "fill_value" in value.attrs:
            return _are_all(np.asarray(value.attrs["fill_value"]), number)
        return value.op.short in {1: ("ones", "ones_like"), 0: ("zeros", "zeros_like")}[number]


def _are_all(data: np.ndarray, number: int) -> bool:
    is_positive = True if data.dtype.kind in "biu" else ~np.signbit(data.astype(np.float64))
    return bool(np.all((data == number) & is_positive))


def _is_identity(call: Call) -> bool:
    return _order(call) == sorted(_order(call))


def _order(call: Any) -> list[int]:
    """Which axis of its operand each axis of a permute_dims is."""
    axes, ndim = call.attrs["axes"], call.args[0].struct_info.ndim
    return list(reversed(range(ndim))) if axes is None else [a % ndim for a in axes]


def _taken(call: Any) -> list[range] | None:
    """What a slice takes of each axis; None where sizes are symbolic, or it goes backwards."""
    info = call.args[0].struct_info
    if not isinstance(info, TensorStructInfo) or not info.is_static:
        return None
    ranges = [range(size) for size in info.static_shape]
    axes, strides = call.attrs["axes"], call.attrs["strides"] or [1] * len(call.attrs["axes"])
    for axis, begin, end, stride in zip(axes, call.attrs["begin"], call.attrs["end"], strides, strict=True):
        if not all(isinstance(v, int) for v in (begin, end, stride)) or stride < 0:
            return None
        ranges[axis] = ranges[axis][begin:end:stride]
    return ranges
