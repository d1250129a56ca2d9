"""Sums, means, extrema and what else reduces axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.relax import op
from pullback.relax.frontend.keras.table import KERAS, Call, as_float, cast


def axes_of(axis: Any) -> Any:
    """Keras's axis, axes or None as the ops take it."""
    return [int(a) for a in axis] if isinstance(axis, (tuple, list)) else axis


def _reduction(names: tuple[str, ...], function: Callable[..., Any], casts: bool) -> None:
    """With ``casts``, in the dtype of the result; else in that of the operand."""

    @KERAS.register(*names)
    def convert(c: Call, x: Any) -> Any:
        x = c.cast(x) if casts else x
        return c.cast(function(x, axis=axes_of(c.axis), keepdims=bool(c.keepdims)))


for _names, _function, _casts in (
    (("ops.Sum",), op.sum, True), (("ops.Mean",), op.mean, True), (("ops.Prod",), op.prod, True),
    (("ops.Std",), op.std, True), (("ops.Var",), op.variance, True), (("ops.Logsumexp",), op.logsumexp, True),
    (("ops.Any",), op.any, False), (("ops.All",), op.all, False), (("ops.Amax",), op.max, True),
    (("ops.Amin",), op.min, True), (("ops.Argmax",), op.argmax, False), (("ops.Argmin",), op.argmin, False),
):  # fmt: skip
    _reduction(_names, _function, _casts)


def _extremum(name: str, function: Callable[..., Any], of_two: Callable[[Any, Any], Any]) -> None:
    @KERAS.register(f"ops.{name}")
    def convert(c: Call, x: Any) -> Any:
        found = function(c.cast(x), axis=axes_of(c.axis), keepdims=bool(c.keepdims))
        return found if c.initial is None else of_two(found, cast(c.initial, found.dtype))


_extremum("Max", op.max, op.maximum)
_extremum("Min", op.min, op.minimum)


@KERAS.register("ops.Ptp")
def ptp(c: Call, x: Any) -> Any:
    axes, keep = axes_of(c.axis), bool(c.keepdims)
    return op.max(x, axes, keep) - op.min(x, axes, keep)


@KERAS.register("ops.CountNonzero")
def count_nonzero(c: Call, x: Any) -> Any:
    return c.cast(op.count_nonzero(x, axes_of(c.axis)))


@KERAS.register("ops.Average")
def average(c: Call, x: Any, weights: Any = None) -> Any:
    x, axis = c.cast(x), c.axis
    if weights is None:
        return op.mean(x, axis)
    weights = c.cast(weights)
    if len(weights.shape) != len(x.shape):
        weights = op.reshape(weights, [-1 if a == axis % len(x.shape) else 1 for a in range(len(x.shape))])
        weights = op.broadcast_to(weights, x.shape)
    return op.sum(x * weights, axis) / op.sum(weights, axis)


@KERAS.register("ops.Moments")
def moments(c: Call, x: Any) -> Any:
    axes, keep = axes_of(c.axes), bool(c.keepdims)
    wide = cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x
    return tuple(cast(v, x.dtype) for v in (op.mean(wide, axes, keep), op.variance(wide, axes, keep)))


@KERAS.register("ops.Norm")
def norm(c: Call, x: Any) -> Any:
    x = as_float(c, x)
    axes = axes_of(c.axis)
    count = len(axes) if isinstance(axes, list) else 1 if axes is not None else len(x.shape)
    order = c.ord
    if order in (None, "fro") or (count == 1 and isinstance(order, (int, float))):
        return op.norm(x, ord=2.0 if order in (None, "fro") else float(order), axis=axes, keepdims=bool(c.keepdims))
    from pullback.ir.errors import UserError

    raise UserError(f"norms of matrices of the order {order!r} are not converted", hint="of vectors all are")


@KERAS.register("ops.Cumsum")
def cumsum(c: Call, x: Any) -> Any:
    return op.cumsum(c.cast(x), c.axis)


@KERAS.register("ops.Cumprod")
def cumprod(c: Call, x: Any) -> Any:
    return op.cumprod(c.cast(x), c.axis)


@KERAS.register("ops.Sort")
def sort(c: Call, x: Any) -> Any:
    return op.sort(op.flatten(x) if c.axis is None else x, -1 if c.axis is None else c.axis)


@KERAS.register("ops.Argsort")
def argsort(c: Call, x: Any) -> Any:
    return c.cast(op.argsort(op.flatten(x) if c.axis is None else x, -1 if c.axis is None else c.axis))


@KERAS.register("ops.TopK")
def top_k(c: Call, x: Any) -> Any:
    found = op.topk(x, c.k, -1)
    return found[0], cast(found[1], "int32")


@KERAS.register("ops.InTopK")
def in_top_k(c: Call, targets: Any, predictions: Any) -> Any:
    index = op.expand_dims(cast(targets, "int64"), 1)
    own = op.gather_elements(predictions, index, 1)
    return op.less(op.sum(cast(op.greater(predictions, own), "int32"), 1), cast(c.k, "int32"))


def _segments(name: str, reduction: str) -> None:
    @KERAS.register(f"ops.{name}")
    def convert(c: Call, data: Any, segment_ids: Any) -> Any:
        return op.segment_reduce(data, segment_ids, c.num_segments, reduction)


for _name, _kind in (("SegmentSum", "add"), ("SegmentMax", "max"), ("SegmentMin", "min"), ("SegmentProd", "mul")):
    _segments(_name, _kind)
