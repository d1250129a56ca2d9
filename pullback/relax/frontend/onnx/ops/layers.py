"""Layers: convolutions, pools, norms, products of matrices, losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, ShapeError, UserError
from pullback.nn.functional.convolution import with_bias
from pullback.nn.trace import active_trace
from pullback.relax import op
from pullback.relax.expr import const
from pullback.relax.frontend.onnx.known import product, static
from pullback.relax.frontend.onnx.ops.elementwise import numbers_like
from pullback.relax.frontend.onnx.ops.shapes import axis_of, padded, rank_of, shape_of
from pullback.relax.frontend.onnx.table import ONNX
from pullback.relax.frontend.padding import least
from pullback.relax.op.nn.window import same_padding
from pullback.tir.expr import FLOATS
from pullback.tir.polynomial import same

# -- windows


def windows(
    x: Any, kernel: Sequence[int], auto_pad: str, pads: Any, strides: Any, dilations: Any
) -> tuple[list[int], list[int], list[int]]:  # fmt: skip
    """Strides, dilations, and the padding before all spatial axes of x and then after all."""
    rank = len(kernel)
    strides, dilations = list(strides or [1] * rank), list(dilations or [1] * rank)
    if not 1 <= rank <= 3:
        raise ShapeError(f"windows over {rank} spatial axes: there are 1 to 3")
    if rank_of(x) != rank + 2:
        raise ShapeError(f"a tensor of rank {rank_of(x)} with windows {tuple(kernel)}: rank {rank + 2} is expected")
    if auto_pad in ("", "NOTSET"):
        return strides, dilations, list(pads or [0] * (2 * rank))
    if auto_pad == "VALID":
        return strides, dilations, [0] * (2 * rank)
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise ArgumentError(f"auto_pad={auto_pad!r} is not known")
    before, after = [], []
    for size, k, s, d in zip(shape_of(x)[2:], kernel, strides, dilations, strict=True):
        (n,) = [size] if s == 1 else static([size], "the spatial sizes of windows with auto_pad")
        total = same_padding(n, (k - 1) * d + 1, s)
        assert total is not None
        less, more = total // 2, total - total // 2
        before.append(less if auto_pad == "SAME_UPPER" else more)
        after.append(more if auto_pad == "SAME_UPPER" else less)
    return strides, dilations, [*before, *after]


@ONNX.register("Conv")
def conv(
    x: Any, w: Any, bias: Any = None, *, auto_pad: str = "NOTSET", dilations: Any = None, group: int = 1,
    kernel_shape: Any = None, pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    kernel = static(shape_of(w)[2:], "the sizes of a kernel")
    steps, apart, padding = windows(x, kernel, auto_pad, pads, strides, dilations)
    if any(p < 0 for p in padding):
        rank = len(kernel)
        x, padding = padded(x, [0, 0, *padding[:rank], 0, 0, *padding[rank:]]), [0] * (2 * rank)
    found = getattr(op.nn, f"conv{len(kernel)}d")(
        x, w, strides=steps, padding=padding, dilation=apart, groups=group
    )  # fmt: skip
    return with_bias(found, bias, rank_of(found) - 2)


@ONNX.register("ConvTranspose")
def conv_transpose(
    x: Any, w: Any, bias: Any = None, *, auto_pad: str = "NOTSET", dilations: Any = None, group: int = 1,
    kernel_shape: Any = None, output_padding: Any = None, output_shape: Any = None, pads: Any = None,
    strides: Any = None,
) -> Any:  # fmt: skip
    kernel = static(shape_of(w)[2:], "the sizes of a kernel")
    rank = len(kernel)
    is_same = auto_pad in ("SAME_UPPER", "SAME_LOWER")
    steps, apart, padding = windows(x, kernel, "NOTSET" if is_same else auto_pad, pads, strides, dilations)
    extra = list(output_padding or [0] * rank)
    if output_shape is not None or is_same:
        before, after = [], []
        wanted = list(output_shape)[-rank:] if output_shape is not None else [None] * rank
        for k in range(rank):
            reach = (kernel[k] - 1) * apart[k] + 1
            if wanted[k] is None:
                total = reach + extra[k] - steps[k]
            else:
                (n,) = static(shape_of(x)[2 + k : 3 + k], "the spatial sizes of ConvTranspose with output_shape")
                total = steps[k] * (n - 1) + extra[k] + reach - wanted[k]
            half = math.floor(total / 2) if total >= 0 else total // 2
            before.append(half if auto_pad == "SAME_UPPER" else total - half)
            after.append(total - half if auto_pad == "SAME_UPPER" else half)
        padding = [*before, *after]
    ends = [*padding[:rank], *(p - e for p, e in zip(padding[rank:], extra, strict=True))]
    found = getattr(op.nn, f"conv{rank}d_transpose")(
        x, w, strides=steps, padding=[max(p, 0) for p in ends], dilation=apart, groups=group
    )  # fmt: skip
    zeros = [max(-p, 0) for p in ends]
    if any(zeros):
        found = padded(found, [0, 0, *zeros[:rank], 0, 0, *zeros[rank:]])
    return with_bias(found, bias, rank_of(found) - 2)


# -- pools


def _apart(x: Any, kernel: Sequence[int], padding: Sequence[int], value: Any) -> tuple[Any, list[int]]:
    """x, with the padding put in where it is more than ops take: half of a window."""
    rank = len(kernel)
    if all(p <= k // 2 for p, k in zip(padding, [*kernel, *kernel], strict=True)):
        return x, list(padding)
    return padded(x, [0, 0, *padding[:rank], 0, 0, *padding[rank:]], value=value), [0] * (2 * rank)


@ONNX.register("AveragePool")
def average_pool(
    x: Any, *, kernel_shape: Any, auto_pad: str = "NOTSET", ceil_mode: int = 0, count_include_pad: int = 0,
    dilations: Any = None, pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    steps, apart, padding = windows(x, kernel_shape, auto_pad, pads, strides, dilations)
    pool = getattr(op.nn, f"avg_pool{len(kernel_shape)}d")
    given, left = _apart(x, kernel_shape, padding, 0.0)

    def mean(data: Any, include: bool) -> Any:
        return pool(data, list(kernel_shape), steps, left, apart, bool(ceil_mode), include)

    if given is x or count_include_pad:
        return mean(given, bool(count_include_pad))
    ones, _ = _apart(op.ones_like(x), kernel_shape, padding, 0.0)
    return op.divide(mean(given, True), mean(ones, True))


@ONNX.register("MaxPool")
def max_pool(
    x: Any, *, kernel_shape: Any, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Any = None,
    pads: Any = None, storage_order: int = 0, strides: Any = None, node: Any,
) -> Any:  # fmt: skip
    steps, apart, padding = windows(x, kernel_shape, auto_pad, pads, strides, dilations)
    given, left = _apart(x, kernel_shape, padding, least(x.struct_info.dtype))
    pool = getattr(op.nn, f"max_pool{len(kernel_shape)}d")
    found = pool(given, list(kernel_shape), steps, left, apart, bool(ceil_mode))
    if not node.wants(1):
        return found, None
    return found, _places(x, list(kernel_shape), steps, apart, padding, shape_of(found)[2:], storage_order)


def _places(
    x: Any, kernel: list[int], steps: list[int], apart: list[int], padding: list[int], outputs: Sequence[Any],
    storage_order: int,
) -> Any:  # fmt: skip
    """The numbers, in the whole of x, of the elements that the windows of MaxPool choose."""
    rank = len(kernel)
    sizes = static(shape_of(x), "the sizes of MaxPool with indices")
    out = static(outputs, "the sizes of MaxPool with indices")
    numbers = np.arange(product(sizes), dtype=np.int64).reshape(sizes)
    if storage_order:
        order = [0, 1, *range(rank + 1, 1, -1)]
        numbers = np.arange(product(sizes), dtype=np.int64).reshape([sizes[a] for a in order]).transpose(order)
    room = [
        max((o - 1) * s + (k - 1) * d + 1 - n - b, a)
        for o, s, k, d, n, b, a in zip(
            out, steps, kernel, apart, sizes[2:], padding[:rank], padding[rank:], strict=True
        )
    ]
    around = [0, 0, *padding[:rank], 0, 0, *room]
    data = padded(x, around, value=least(x.struct_info.dtype))
    places = np.pad(numbers, [(around[a], around[rank + 2 + a]) for a in range(rank + 2)], constant_values=-1)
    axes = list(range(2, rank + 2))
    values, chosen = [], []
    for tap in np.ndindex(*kernel):
        begin = [t * d for t, d in zip(tap, apart, strict=True)]
        end = [b + (o - 1) * s + 1 for b, o, s in zip(begin, out, steps, strict=True)]
        values.append(op.strided_slice(data, axes, begin, end, steps))
        taps = (slice(b, e, s) for b, e, s in zip(begin, end, steps, strict=True))
        index = (slice(None), slice(None), *taps)
        chosen.append(places[index])
    best = op.argmax(op.stack(values, 0), 0, True)
    return op.squeeze(op.gather_elements(const(np.stack(chosen)), best, 0), [0])


@ONNX.register("MaxUnpool")
def max_unpool(
    x: Any, places: Any, output_shape: Any = None, *, kernel_shape: Any, pads: Any = None, strides: Any = None
) -> Any:  # fmt: skip
    from pullback.relax.frontend.onnx.known import ints

    rank = len(kernel_shape)
    steps, padding = list(strides or [1] * rank), list(pads or [0] * (2 * rank))
    sizes = static(shape_of(x), "the sizes of MaxUnpool")
    inner = [
        (n - 1) * s - padding[k] - padding[rank + k] + kernel_shape[k]
        for k, (n, s) in enumerate(zip(sizes[2:], steps, strict=True))
    ]
    whole = [*sizes[:2], *inner]
    zeros = op.zeros((product(whole),), x.struct_info.dtype)
    flat = op.scatter_elements(zeros, op.flatten(places), op.flatten(x), 0)
    found = op.reshape(flat, tuple(whole))
    if output_shape is None:
        return found
    wanted = static(ints(output_shape), "the sizes of MaxUnpool")
    return padded(found, [0] * len(wanted) + [w - n for w, n in zip(wanted, whole, strict=True)])


@ONNX.register("LpPool")
def lp_pool(
    x: Any, *, kernel_shape: Any, p: int, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Any = None,
    pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    steps, apart, padding = windows(x, kernel_shape, auto_pad, pads, strides, dilations)
    rank = len(kernel_shape)
    powers = _power(op.abs(x), p)
    given = padded(powers, [0, 0, *padding[:rank], 0, 0, *padding[rank:]])
    pool = getattr(op.nn, f"avg_pool{rank}d")
    if ceil_mode:
        mean = pool(given, list(kernel_shape), steps, 0, apart, True, False)
        counts = _counts(given, kernel_shape, steps, apart, shape_of(mean)[2:])
        return _root(op.multiply(mean, const(counts.astype(np.float32), x.struct_info.dtype)), p)
    mean = pool(given, list(kernel_shape), steps, 0, apart, False, True)
    return _root(op.multiply(mean, numbers_like(math.prod(kernel_shape), x)), p)


def _counts(x: Any, kernel: Any, steps: Any, apart: Any, outputs: Any) -> np.ndarray:
    """How many elements of x each window has."""
    sizes = static(shape_of(x)[2:], "the sizes of LpPool with ceil_mode")
    counts = [
        np.array([sum(o * s + t * d < n for t in range(k)) for o in range(m)])
        for n, m, k, s, d in zip(sizes, outputs, kernel, steps, apart, strict=True)
    ]
    return np.asarray(math.prod(np.ix_(*counts)))


def _power(x: Any, p: int) -> Any:
    return op.square(x) if p == 2 else x if p == 1 else op.power(x, numbers_like(p, x))


def _root(x: Any, p: int) -> Any:
    return op.sqrt(x) if p == 2 else x if p == 1 else op.power(x, numbers_like(1 / p, x))


def _spatial(x: Any) -> list[int]:
    return list(range(2, rank_of(x)))


@ONNX.register("GlobalAveragePool")
def global_average_pool(x: Any) -> Any:
    return op.mean(x, _spatial(x), True)


@ONNX.register("GlobalMaxPool")
def global_max_pool(x: Any) -> Any:
    return op.max(x, _spatial(x), True)


@ONNX.register("GlobalLpPool")
def global_lp_pool(x: Any, *, p: int) -> Any:
    return op.norm(x, float(p), _spatial(x), True)


# -- norms


@ONNX.register("BatchNormalization")
def batch_norm_old(*inputs: Any, is_test: int = 0, node: Any, **attrs: Any) -> Any:
    """Versions before 7 are in the form for training unless they say otherwise."""
    return batch_norm(*inputs, training_mode=int(not is_test), node=node, **attrs)


@ONNX.register("BatchNormalization-7")
def batch_norm(
    x: Any, scale: Any, bias: Any, mean: Any, variance: Any, *, epsilon: float, momentum: float = 0.9,
    training_mode: int = 0, spatial: int = 1, node: Any, consumed_inputs: Any = None,
) -> Any:  # fmt: skip
    """In steps of training by the batch's statistics, which move those of the model, as PyTorch does; else by the
    model's. Where these are no initialisers, ``training_mode`` decides."""
    if not spatial:
        raise UserError("spatial=0, a mean for each element, is not converted")
    buffers = node.replay.buffers
    is_state = mean in buffers and variance in buffers and not node.scope.is_inner
    if is_state:
        moved = op.nn.batch_norm(x, scale, bias, mean, variance, epsilon=epsilon, momentum=1 - momentum)
        trace = active_trace()
        for old, new in ((mean, moved[1]), (variance, moved[2])):
            buffers[old](trace.bind(new, "statistics"))
        return (moved[0], moved[1], moved[2], None, None)[: max(node.results, 1)]
    if not training_mode:
        found = op.nn.batch_norm(x, scale, bias, mean, variance, epsilon=epsilon, training=False)
        return (found[0], None, None, None, None)[: max(node.results, 1)]
    axes = [0, *_spatial(x)]
    batch_mean, batch_variance = op.mean(x, axes), op.variance(x, axes)
    given = [_as(v, x) for v in (batch_mean, batch_variance)]
    y = op.nn.batch_norm(x, scale, bias, *given, epsilon=epsilon, training=False)[0]
    kept, new = numbers_like(momentum, mean), numbers_like(1 - momentum, mean)
    moved_to = [
        op.add(op.multiply(old, kept), op.multiply(_as(v, old), new))
        for old, v in ((mean, batch_mean), (variance, batch_variance))
    ]
    return (y, *moved_to)


def _as(x: Any, like: Any) -> Any:
    return x if x.struct_info.dtype == like.struct_info.dtype else op.astype(x, like.struct_info.dtype)


@ONNX.register("InstanceNormalization")
def instance_norm(x: Any, scale: Any, bias: Any, *, epsilon: float, **_: Any) -> Any:
    return op.nn.instance_norm(x, scale, bias, channel_axis=1, axes=_spatial(x), epsilon=epsilon)


@ONNX.register("LayerNormalization")
def layer_norm(
    x: Any, scale: Any, bias: Any = None, *, axis: int, epsilon: float, stash_type: int, node: Any
) -> Any:  # fmt: skip
    axes = list(range(axis_of(axis, rank_of(x)), rank_of(x)))
    sizes = shape_of(x)[axes[0] :]
    if _is_shape(scale, sizes) and (bias is None or _is_shape(bias, sizes)):
        y = op.nn.layer_norm(
            x, scale, op.zeros_like(scale) if bias is None else bias, axes, epsilon, center=bias is not None
        )  # fmt: skip
    else:
        ones, zeros = op.ones(sizes, x.struct_info.dtype), op.zeros(sizes, x.struct_info.dtype)
        y = op.multiply(op.nn.layer_norm(x, ones, zeros, axes, epsilon, center=False, scale=False), scale)
        y = y if bias is None else op.add(y, bias)
    if node.results == 1:
        return y
    wide = op.astype(x, "float32") if stash_type == 1 and x.struct_info.dtype != "float32" else x
    mean = op.mean(wide, axes, True)
    deviation = op.rsqrt(op.add(op.variance(wide, axes, True), numbers_like(epsilon, wide)))
    return (y, mean, deviation)[: node.results]


def _is_shape(x: Any, sizes: Sequence[Any]) -> bool:
    found = shape_of(x)
    return len(found) == len(sizes) and all(same(a, b) for a, b in zip(found, sizes, strict=True))


@ONNX.register("RMSNormalization")
def rms_norm(x: Any, scale: Any, *, axis: int, epsilon: float, stash_type: int = 1) -> Any:
    axes = list(range(axis_of(axis, rank_of(x)), rank_of(x)))
    sizes = shape_of(x)[axes[0] :]
    if _is_shape(scale, sizes) and scale.struct_info.dtype == x.struct_info.dtype:
        return op.nn.rms_norm(x, scale, axes, epsilon)
    return op.multiply(_as(op.nn.rms_norm(x, op.ones(sizes, x.struct_info.dtype), axes, epsilon), scale), scale)


@ONNX.register("GroupNormalization")
def group_norm_old(x: Any, scale: Any, bias: Any, *, epsilon: float, num_groups: int, **_: Any) -> Any:
    (channels,) = static(shape_of(x)[1:2], "the number of channels")
    each = channels // num_groups
    return group_norm(x, op.repeat(scale, each, 0), op.repeat(bias, each, 0), epsilon=epsilon, num_groups=num_groups)


@ONNX.register("GroupNormalization-21")
def group_norm(x: Any, scale: Any, bias: Any, *, epsilon: float, num_groups: int, **_: Any) -> Any:
    return op.nn.group_norm(x, scale, bias, num_groups, 1, _spatial(x), epsilon)


@ONNX.register("LRN")
def lrn(x: Any, *, alpha: float, beta: float, bias: float, size: int) -> Any:
    """Local response normalisation over channels: windows of ⌊(size - 1) / 2⌋ before and ⌈(size - 1) / 2⌉ behind."""
    sizes = shape_of(x)
    flat = op.reshape(op.square(x), (sizes[0], 1, sizes[1], product(sizes[2:])))
    around = padded(flat, [0, 0, (size - 1) // 2, 0, 0, 0, size // 2, 0])
    mean = op.reshape(op.nn.avg_pool2d(around, (size, 1)), sizes)
    scale = op.add(op.multiply(mean, numbers_like(alpha, x)), numbers_like(bias, x))
    return op.divide(x, op.power(scale, numbers_like(beta, x)))


# -- products


@ONNX.register("MatMul")
def matmul(x: Any, y: Any) -> Any:
    return op.matmul(x, y)


@ONNX.register("Gemm")
def gemm(
    a: Any, b: Any, c: Any = None, *, alpha: float, beta: float, transA: int, transB: int, **_: Any
) -> Any:  # fmt: skip
    left = op.permute_dims(a) if transA else a
    is_bias = c is not None and beta == 1 and rank_of(c) == 1 and same(shape_of(c)[0], shape_of(b)[0 if transB else 1])
    if transB and alpha == 1 and (c is None or is_bias) and a.struct_info.dtype in FLOATS:
        return op.linear(left, b) if c is None else op.linear(left, b, c)
    product_of = op.matmul(left, op.permute_dims(b) if transB else b)
    scaled = _scaled(product_of, alpha)
    return scaled if c is None or beta == 0 else op.add(scaled, _scaled(c, beta))


def _scaled(x: Any, factor: float) -> Any:
    if factor == 1:
        return x
    if x.struct_info.dtype in FLOATS:
        return op.multiply(x, numbers_like(factor, x))
    return op.astype(op.multiply(op.astype(x, "float64"), const(factor, "float64")), x.struct_info.dtype)


@ONNX.register("Einsum")
def einsum(*operands: Any, equation: str) -> Any:
    return op.einsum(list(operands), equation.replace(" ", ""))


@ONNX.register("Det")
def det(x: Any) -> Any:
    """The determinants of matrices, by elimination with the greatest pivots."""
    *batch, rows, columns = shape_of(x)
    (n,) = static([rows], "the size of matrices whose determinant is asked for")
    if not same(rows, columns):
        raise ShapeError(f"matrices of shape ({rows}, {columns}) have no determinant")
    left = op.reshape(x, (product(batch), n, n))
    result = op.ones((product(batch),), x.struct_info.dtype)
    zero, one = numbers_like(0, x), numbers_like(1, x)
    for k in range(n, 0, -1):
        place = op.argmax(op.abs(op.squeeze(op.strided_slice(left, [2], [0], [1]), [2])), 1)
        chosen = op.expand_dims(op.equal(op.expand_dims(place, 1), const(np.arange(k))), 2)
        pivot = op.sum(op.where(chosen, left, op.zeros_like(left)), [1], True)
        first = op.strided_slice(left, [1], [0], [1])
        rest = op.strided_slice(op.where(chosen, first, left), [1], [1], [k])
        head = op.squeeze(op.strided_slice(pivot, [2], [0], [1]), [1, 2])
        sign = op.where(op.equal(place, const(0)), one, numbers_like(-1, x))
        result = op.multiply(result, op.multiply(head, sign))
        if k > 1:
            safe = op.where(op.equal(head, zero), one, head)
            factors = op.divide(op.strided_slice(rest, [2], [0], [1]), op.reshape(safe, (product(batch), 1, 1)))
            left = op.subtract(
                op.strided_slice(rest, [2], [1], [k]), op.multiply(factors, op.strided_slice(pivot, [2], [1], [k]))
            )
    return op.reshape(result, tuple(batch))


# -- losses

_NONE = -(2**62)  # a class that there is not


@ONNX.register("NegativeLogLikelihoodLoss")
def nll_loss(x: Any, target: Any, weight: Any = None, *, ignore_index: int | None = None, reduction: str) -> Any:
    """Rows of a target that is ignored, whatever number that is, count nothing."""
    if ignore_index is None:
        ignore_index = _NONE if target.struct_info.dtype == "int64" else -(2**31)
    return op.nn.nll_loss(x, target, weight, reduction, ignore_index)


@ONNX.register("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(
    x: Any, target: Any, weight: Any = None, *, ignore_index: int | None = None, reduction: str, node: Any
) -> Any:  # fmt: skip
    log_prob = active_trace().bind(op.nn.log_softmax(x, 1), "log_prob")
    loss = nll_loss(log_prob, target, weight, ignore_index=ignore_index, reduction=reduction)
    return (loss, log_prob)[: node.results]
