"""SimplifyExpr: algebra of single expressions, from the arguments up.

    zeros_like(%x)                            →    zeros(shape=[2, 3], dtype="float32")
    reshape(reshape(%x, …), newshape=[6])     →    reshape(%x, newshape=[6])
    transpose(transpose(%x, …), …)            →    transpose(%x, …), or %x
    cast(cast(%x, dtype="float32"), …)        →    cast(%x, …), where the first one loses nothing
    clip(clip(%x, …), …)                      →    clip(%x, …)
    add(%x, zeros(…)), multiply(%x, 1f)       →    %x
    add(%x, ones(shape=[2, 3]))               →    add(%x, 1f), where the shape remains
    add(%x, %x)                               →    multiply(%x, 2f)
    divide(%c, sqrt(%x))                      →    multiply(%c, rsqrt(%x))
    multiply(add(%x, 1f), 2f)                 →    add(multiply(%x, 2f), multiply(1f, 2f)), for FoldConstant

``…_like`` ops take their shapes and types from the inferred types, where these are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.module import IRModule
from pullback.relay.expr import Call, Constant, Expr, Function, call_op, set_checked_type
from pullback.relay.op.registry import Op, OpPattern
from pullback.relay.transform.infra import CallRewriter, FunctionPass
from pullback.relay.transform.layouts import parts
from pullback.relay.transform.parts import is_call, same_call, scalar, tensor_type
from pullback.relay.ty import TensorType
from pullback.runtime.dtype import numpy_dtype

Rule = Callable[[Call, TensorType, list[TensorType | None]], Expr | None]  # of a call, its type and its arguments'


@dataclass(frozen=True)
class SimplifyExpr(FunctionPass):
    """Simplify expressions by the rules of algebra.

    Checks: a rule keeps the type, so it needs that of the call: without one the call stays.
    """

    typed = True
    required = ("InferType",)

    def function(self, function: Function, module: IRModule) -> Function:
        return _Simplify().visit(function)


class _Simplify(CallRewriter):
    """Rules keep the type, so what they return has that of the call: rules see the types of what others made."""

    def rewrite(self, old: Call, new: Call) -> Expr | None:
        result = tensor_type(old)
        if result is None or not isinstance(old.op, Op):
            return None
        found: Expr = new
        while True:
            if tensor_type(found) is None:
                set_checked_type(found, result)
            simpler = _simpler(found, result)
            if simpler is None:
                return found
            found = simpler


def _simpler(expr: Expr, result: TensorType) -> Expr | None:
    if not isinstance(expr, Call) or not isinstance(expr.op, Op):
        return None
    types = [tensor_type(arg) for arg in expr.args]
    for rule in _RULES:
        found = rule(expr, result, types)
        if found is not None:
            return found
    return None


def _likes(call: Call, result: TensorType, types: Sequence[Any]) -> Expr | None:
    """``…_like`` ops with the shape and the type that they come to."""
    if not result.is_concrete:
        return None
    shape, dtype = result.concrete_shape, result.dtype
    if is_call(call, "zeros_like", "ones_like"):
        return call_op(call.op.name.removesuffix("_like"), shape, dtype)
    if is_call(call, "full_like"):
        return call_op("full", call.args[1], shape=shape, dtype=dtype)
    if is_call(call, "reshape_like"):
        return call_op("reshape", call.args[0], newshape=shape)
    if is_call(call, "collapse_sum_like"):
        return call_op("collapse_sum_to", call.args[0], shape)
    if is_call(call, "broadcast_to_like"):
        return call_op("broadcast_to", call.args[0], shape)
    return None


def _cast_like(call: Call, result: TensorType, types: Sequence[Any]) -> Expr | None:
    return call_op("cast", call.args[0], result.dtype) if is_call(call, "cast_like") else None


def _reshapes(call: Call, result: TensorType, types: Sequence[Any]) -> Expr | None:
    """A reshape of a reshape is one."""
    names = ("reshape", "contrib_reverse_reshape")
    if not is_call(call, *names) or not is_call(call.args[0], *names) or not result.is_concrete:
        return None
    return call_op("reshape", call.args[0].args[0], newshape=result.concrete_shape)


_TRANSPOSES = ("transpose", "layout_transform")


def _transposes(call: Call, result: TensorType, types: Sequence[Any]) -> Expr | None:
    """A transpose that moves nothing is its argument; two in a row are one."""
    if not is_call(call, *_TRANSPOSES):
        return None
    axes = _axes(call, result.ndim)
    if axes == list(range(result.ndim)):
        return call.args[0]
    inner = call.args[0]
    if not is_call(inner, *_TRANSPOSES):
        return None
    first = _axes(inner, result.ndim)
    if axes is not None and first is not None:
        both = [first[axis] for axis in axes]
        return inner.args[0] if both == list(range(result.ndim)) else call_op("transpose", inner.args[0], axes=both)
    if is_call(call, inner.op.name) and inner.attrs.dst_layout != call.attrs.src_layout:
        return None  # one layout is read as another
    source, target = _layouts(inner, call)
    return inner.args[0] if source == target else call_op("layout_transform", inner.args[0], source, target)


def _layouts(first: Call, second: Call) -> tuple[str, str]:
    """The layouts before and after two calls of which one at least cuts axes into blocks, or puts these together."""
    if is_call(first, "layout_transform") and is_call(second, "layout_transform"):
        return first.attrs.src_layout, second.attrs.dst_layout
    if is_call(first, "layout_transform"):
        after = parts(first.attrs.dst_layout)
        return first.attrs.src_layout, "".join(after[axis] for axis in _permutation(second, len(after)))
    between = parts(second.attrs.src_layout)
    before = [""] * len(between)
    for part, axis in zip(between, _permutation(first, len(between)), strict=True):
        before[axis] = part
    return "".join(before), second.attrs.dst_layout


def _permutation(call: Call, ndim: int) -> list[int]:
    axes = call.attrs.axes
    return list(range(ndim))[::-1] if not axes else [axis % ndim for axis in axes]


def _axes(call: Call, ndim: int) -> list[int] | None:
    """The axes of the argument in the order of the result; None where axes are cut into blocks."""
    if is_call(call, "transpose"):
        return _permutation(call, ndim)
    source, target = call.attrs.src_layout, call.attrs.dst_layout
    if sorted(source) != sorted(target) or not source.isalpha() or len(source) != ndim:
        return None
    return [source.index(letter) for letter in target]


def _casts(call: Call, result: TensorType, types: Sequence[Any]) -> Expr | None:
    """A cast to the type that is there already, and one after another that loses nothing."""
    if not is_call(call, "cast") or types[0] is None:
        return None
    if types[0].dtype == result.dtype:
        return call.args[0]
    inner = call.args[0]
    if is_call(inner, "cast"):
        source = tensor_type(inner.args[0])
        if source is not None and loses_nothing(source.dtype, types[0].dtype):
            return call_op("cast", inner.args[0], result.dtype)
        clipped = inner.args[0]
        fits = is_call(clipped, "clip") and _holds(types[0].dtype, clipped.attrs.a_min, clipped.attrs.a_max)
        if fits and source is not None and "int" in source.dtype:
            return clipped if source.dtype == result.dtype else call_op("cast", clipped, result.dtype)
    return None


def loses_nothing(source: str, target: str) -> bool:
    """Whether all values of one type are values of the other."""
    return bool(np.can_cast(numpy_dtype(source), numpy_dtype(target), "safe"))


def _holds(dtype: str, low: float, high: float) -> bool:
    """Whether an integer type has all whole numbers between the two."""
    if "int" not in dtype:
        return False
    limits = np.iinfo(numpy_dtype(dtype))
    return limits.min <= low and high <= limits.max


def _clips(call: Call, result: TensorType, types: Sequence[Any]) -> Expr | None:
    """A clip of a clip is one; a clip that an integer type does by itself is none."""
    if not is_call(call, "clip"):
        return None
    low, high, inner = call.attrs.a_min, call.attrs.a_max, call.args[0]
    if "int" in result.dtype:
        limits = np.iinfo(numpy_dtype(result.dtype))
        if low <= limits.min and high >= limits.max:
            return inner
    if not is_call(inner, "clip"):
        return None
    first, last = (min(max(bound, low), high) for bound in (inner.attrs.a_min, inner.attrs.a_max))
    return same_call(inner, inner.args, a_min=first, a_max=last)


def _number(expr: Expr) -> float | None:
    """The one number that a tensor is full of, if that is known."""
    if isinstance(expr, Constant):
        values = np.asarray(expr.data.numpy())
        if values.size and (values == values.flat[0]).all() and values.dtype.kind in "fiub":
            return values.flat[0].item()
    if is_call(expr, "zeros", "zeros_like"):
        return 0
    if is_call(expr, "ones", "ones_like"):
        return 1
    if is_call(expr, "full", "full_like"):
        return _number(expr.args[-1])
    return None


def _identities(call: Call, result: TensorType, types: Sequence[Any]) -> Expr | None:
    """x + 0, x - 0, x · 1, x / 1, where shape and type remain."""
    for names, neutral, sides in (
        (("add",), 0, (0, 1)),
        (("subtract",), 0, (0,)),
        (("multiply",), 1, (0, 1)),
        (("divide",), 1, (0,)),
    ):
        if is_call(call, *names):
            for side in sides:
                if types[side] == result and _number(call.args[1 - side]) == neutral:
                    return call.args[side]
    return None


def _full_operands(call: Call, result: TensorType, types: Sequence[Any]) -> Expr | None:
    """A tensor full of one number beside one of the result's shape is the number."""
    if call.op.pattern != OpPattern.BROADCAST or len(call.args) != 2 or is_call(call, "nn.bias_add", "nn.prelu"):
        return None
    for side in (0, 1):
        other = call.args[1 - side]
        made = is_call(other, "zeros", "zeros_like", "ones", "ones_like", "full", "full_like")
        if not made or types[side] is None or types[side].shape != result.shape or not types[1 - side].ndim:
            continue
        number = _number(other)
        if number is not None:
            full = scalar(number, types[1 - side].dtype)
            return same_call(call, [call.args[0], full] if side == 0 else [full, call.args[1]])
    return None


def _twice(call: Call, result: TensorType, types: Sequence[Any]) -> Expr | None:
    if is_call(call, "add") and call.args[0] is call.args[1]:
        return call_op("multiply", call.args[0], scalar(2, result.dtype))
    return None


def _reciprocal_root(call: Call, result: TensorType, types: Sequence[Any]) -> Expr | None:
    if is_call(call, "divide") and is_call(call.args[1], "sqrt"):
        return call_op("multiply", call.args[0], call_op("rsqrt", call.args[1].args[0]))
    return None


def _constants_together(call: Call, result: TensorType, types: Sequence[Any]) -> Expr | None:
    """(x + c) · d, (x + c) + d and (x · c) · d, where c and d are constants: they meet."""
    if not is_call(call, "add", "multiply"):
        return None
    inner, last = _parted(call)
    if not is_call(inner, "add", "multiply"):
        return None
    data, first = _parted(inner)
    if data is None or isinstance(data, Constant):
        return None
    if inner.op is call.op:
        return call_op(call.op.name, data, call_op(call.op.name, first, last))
    if is_call(inner, "add"):
        return call_op("add", call_op("multiply", data, last), call_op("multiply", first, last))
    return None


def _parted(call: Call) -> tuple[Any, Any]:
    """The operand that is no constant and the one that is, or None and None."""
    for side in (0, 1):
        if isinstance(call.args[1 - side], Constant):
            return call.args[side], call.args[1 - side]
    return None, None


_RULES: list[Rule] = [
    _likes, _cast_like, _identities, _twice, _full_operands, _reciprocal_root, _constants_together, _reshapes,
    _transposes, _casts, _clips,
]  # fmt: skip
