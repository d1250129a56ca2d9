"""Activations, convolutions, pools, normalisation, attention: what ``keras.ops.nn`` has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.ir.errors import UserError
from pullback.nn import functional as F
from pullback.relax import op
from pullback.relax.expr import const
from pullback.relax.frontend.keras.table import KERAS, Call, as_float, cast, same
from pullback.relax.op.nn.window import SPATIAL

same(
    {
        "ops.Relu6": op.nn.relu6, "ops.Sigmoid": op.sigmoid, "ops.Silu": op.nn.silu, "ops.Selu": op.nn.selu,
        "ops.Softsign": op.nn.softsign, "ops.HardSigmoid": op.nn.hardsigmoid, "ops.HardSilu": op.nn.hardswish,
        "ops.HardTanh": op.nn.hardtanh, "ops.LogSigmoid": op.nn.logsigmoid, "ops.TanhShrink": op.nn.tanhshrink,
        "ops.Softplus": lambda x: op.logaddexp(x, cast(0, x.dtype)), "ops.Relu": op.nn.relu,
    }
)  # fmt: skip


@KERAS.register("ops.LeakyRelu")
def leaky_relu(c: Call, x: Any) -> Any:
    return op.nn.leakyrelu(as_float(c, x), float(c.negative_slope))


@KERAS.register("ops.Elu")
def elu(c: Call, x: Any) -> Any:
    return op.nn.elu(as_float(c, x), float(c.alpha))


@KERAS.register("ops.Celu")
def celu(c: Call, x: Any) -> Any:
    return op.nn.celu(as_float(c, x), float(c.alpha))


@KERAS.register("ops.Gelu")
def gelu(c: Call, x: Any) -> Any:
    x = as_float(c, x)
    return op.nn.gelu_tanh(x) if c.approximate else op.nn.gelu(x)


@KERAS.register("ops.Glu")
def glu(c: Call, x: Any) -> Any:
    return op.nn.glu(x, c.axis)


@KERAS.register("ops.HardShrink")
def hard_shrink(c: Call, x: Any) -> Any:
    return op.nn.hardshrink(x, float(c.threshold))


@KERAS.register("ops.SoftShrink")
def soft_shrink(c: Call, x: Any) -> Any:
    return op.nn.softshrink(x, float(c.threshold))


@KERAS.register("ops.Threshold")
def threshold(c: Call, x: Any) -> Any:
    return op.nn.threshold(x, float(c.threshold), float(c.default_value))


@KERAS.register("ops.Squareplus")
def squareplus(c: Call, x: Any) -> Any:
    return (x + op.sqrt(op.square(x) + float(c.b))) * 0.5


@KERAS.register("ops.SparsePlus")
def sparse_plus(c: Call, x: Any) -> Any:
    middle = op.square(x + 1.0) * 0.25
    return op.where(op.less_equal(x, -1.0), op.zeros_like(x), op.where(op.less(x, 1.0), middle, x))


@KERAS.register("ops.SparseSigmoid")
def sparse_sigmoid(c: Call, x: Any) -> Any:
    return op.minimum(op.maximum((x + 1.0) * 0.5, cast(0, x.dtype)), cast(1, x.dtype))


@KERAS.register("ops.Sparsemax")
def sparsemax(c: Call, x: Any) -> Any:
    rank, axis = len(x.shape), c.axis % len(x.shape)
    ordered = op.sort(x, axis, True)
    total = op.cumsum(ordered, axis)
    places = op.reshape(op.arange(1, x.shape[axis] + 1, 1, x.dtype), [-1 if a == axis else 1 for a in range(rank)])
    inside = op.greater(ordered - (total - 1.0) / places, cast(0, x.dtype))
    count = op.sum(cast(inside, x.dtype), axis, True)
    # Keras adds up the running sums of all places inside, where Martins & Astudillo, From Softmax to Sparsemax, 2016,
    # take the last one: of more than one place inside the results differ, and do not add up to 1.
    sums = op.sum(op.where(inside, total, op.zeros_like(total)), axis, True)
    return op.nn.relu(x - (sums - 1.0) / count)


@KERAS.register("ops.Softmax")
def softmax(c: Call, x: Any) -> Any:
    return softmax_over(op.nn.softmax, as_float(c, x), c.axis)


@KERAS.register("ops.LogSoftmax")
def logsoftmax_over(c: Call, x: Any) -> Any:
    return softmax_over(op.nn.log_softmax, as_float(c, x), c.axis)


def softmax_over(function: Callable[..., Any], x: Any, axis: Any) -> Any:
    """A softmax over an axis, several axes, or (None) all elements."""
    if axis is None:
        return op.reshape(function(op.flatten(x), -1), x.shape)
    if not isinstance(axis, (tuple, list)):
        return function(x, axis)
    axes = [a % len(x.shape) for a in axis]
    order = [a for a in range(len(x.shape)) if a not in axes] + axes
    moved = op.permute_dims(x, order)
    kept = len(x.shape) - len(axes)
    found = op.reshape(function(op.reshape(moved, (*moved.shape[:kept], -1)), -1), moved.shape)
    return op.permute_dims(found, [order.index(a) for a in range(len(order))])


# -- convolutions


def layout(data_format: str | None, rank: int) -> str:
    """The layout of data with ``rank`` spatial axes."""
    if data_format is None:
        from keras import config

        data_format = config.image_data_format()
    return f"N{SPATIAL[rank]}C" if data_format == "channels_last" else f"NC{SPATIAL[rank]}"


def numbers(value: Any, rank: int) -> tuple[int, ...]:
    """A number for each axis."""
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank
    return tuple(int(v) for v in given)


def _conv(c: Call, x: Any, kernel: Any, groups: Any) -> Any:
    rank = len(x.shape) - 2
    data = layout(c.data_format, rank)
    convolve = getattr(op.nn, f"conv{rank}d")
    return convolve(
        x, kernel, numbers(c.strides, rank), c.padding.lower(), numbers(c.dilation_rate, rank), groups,
        data_layout=data, kernel_layout=f"{SPATIAL[rank]}IO",
    )  # fmt: skip


@KERAS.register("ops.Conv")
def conv(c: Call, inputs: Any, kernel: Any) -> Any:
    axis = layout(c.data_format, len(inputs.shape) - 2).index("C")
    return _conv(c, cast(inputs, kernel.dtype), kernel, inputs.shape[axis] // kernel.shape[-2])


@KERAS.register("ops.DepthwiseConv")
def depthwise_conv(c: Call, inputs: Any, kernel: Any) -> Any:
    return _depthwise(c, inputs, kernel)


def _depthwise(c: Call, inputs: Any, kernel: Any) -> Any:
    *window, channels, multiplier = kernel.shape
    return _conv(c, inputs, op.reshape(kernel, (*window, 1, channels * multiplier)), channels)


@KERAS.register("ops.SeparableConv")
def separable_conv(c: Call, inputs: Any, depthwise_kernel: Any, pointwise_kernel: Any) -> Any:
    rank = len(inputs.shape) - 2
    found = _depthwise(c, inputs, depthwise_kernel)
    convolve = getattr(op.nn, f"conv{rank}d")
    return convolve(
        found, pointwise_kernel, 1, 0, 1, 1,
        data_layout=layout(c.data_format, rank), kernel_layout=f"{SPATIAL[rank]}IO",
    )  # fmt: skip


def transposed_padding(kernel: int, stride: int, padding: str, extra: int | None) -> tuple[int, int]:
    """How much Keras cuts off before and after the full transposed convolution with a (dilated) kernel; less than
    nothing where it adds zeros."""
    if padding == "valid":
        return 0, -(max(kernel, stride) - kernel if extra is None else extra)
    total = stride + kernel - 2 if extra is None else kernel + kernel % 2 - 2 + extra
    left = min(total // 2 + total % 2, kernel - 1)
    return kernel - 1 - left, kernel - 1 - (total - left)


@KERAS.register("ops.ConvTranspose")
def conv_transpose(c: Call, inputs: Any, kernel: Any) -> Any:
    rank = len(inputs.shape) - 2
    data = layout(c.data_format, rank)
    strides, dilation = numbers(c.strides, rank), numbers(c.dilation_rate, rank)
    extra = (None,) * rank if c.output_padding is None else numbers(c.output_padding, rank)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel.shape[:rank], dilation, strict=True)]
    cuts = [
        transposed_padding(k, s, c.padding.lower(), e) for k, s, e in zip(reach, strides, extra, strict=True)
    ]  # fmt: skip
    before, after = [b for b, _ in cuts], [max(a, 0) for _, a in cuts]
    convolve = getattr(op.nn, f"conv{rank}d_transpose")
    found = convolve(
        inputs, kernel, strides, (*before, *after), 0, dilation, 1, data_layout=data,
        kernel_layout=f"{SPATIAL[rank]}OI",
    )  # fmt: skip
    zeros = iter([max(-a, 0) for _, a in cuts])
    around = [(0, next(zeros)) if letter in SPATIAL[rank] else (0, 0) for letter in data]
    return op.nn.pad(found, around) if any(after for _, after in around) else found


# -- pools


def _pool(name: str, kind: str) -> None:
    @KERAS.register(f"ops.{name}")
    def convert(c: Call, inputs: Any) -> Any:
        rank = len(inputs.shape) - 2
        window = numbers(c.pool_size, rank)
        strides = window if c.strides is None else numbers(c.strides, rank)
        pool = getattr(op.nn, f"{kind}_pool{rank}d")
        return pool(inputs, window, strides, c.padding.lower(), layout=layout(c.data_format, rank))


_pool("MaxPool", "max")
_pool("AveragePool", "avg")


def _adaptive(name: str, kind: str) -> None:
    @KERAS.register(f"ops.{name}")
    def convert(c: Call, inputs: Any) -> Any:
        rank = len(inputs.shape) - 2
        pool = getattr(F, f"adaptive_{kind}_pool{rank}d")
        size = numbers(c.output_size, rank)
        if layout(c.data_format, rank)[1] == "C":
            return pool(inputs, size)
        first = op.permute_dims(inputs, [0, rank + 1, *range(1, rank + 1)])
        return op.permute_dims(pool(first, size), [0, *range(2, rank + 2), 1])


_adaptive("AdaptiveMaxPool", "max")
_adaptive("AdaptiveAveragePool", "avg")


# -- normalisation


@KERAS.register("ops.BatchNorm")
def batch_normalization(c: Call, x: Any, mean: Any, variance: Any, offset: Any = None, scale: Any = None) -> Any:
    return normalized(x, mean, variance, offset, scale, c.axis, c.epsilon)


def normalized(x: Any, mean: Any, variance: Any, offset: Any, scale: Any, axis: int, epsilon: float) -> Any:
    """(x - mean) / √(variance + epsilon) · scale + offset, with a value of each for each place of the axis."""
    given = {"gamma": scale, "beta": offset}
    ones = op.ones(mean.shape, mean.dtype)
    gamma, beta = (ones if v is None else v for v in given.values())
    return op.nn.batch_norm(
        x, gamma, beta, mean, variance, axis=axis, epsilon=float(epsilon), center=offset is not None,
        scale=scale is not None, training=False,
    )[0]  # fmt: skip


def _axes(axis: Any, rank: int) -> list[int]:
    return sorted(a % rank for a in (axis if isinstance(axis, (tuple, list)) else [axis]))


def _epsilon(value: Any) -> float:
    if value is not None:
        return float(value)
    from keras import config

    return float(config.epsilon())


@KERAS.register("ops.LayerNorm")
def layer_normalization(c: Call, x: Any, gamma: Any = None, beta: Any = None) -> Any:
    if c.rms_scaling:
        raise UserError("layer normalisation with rms_scaling is not converted", hint="use RMSNormalization")
    axes = _axes(c.axis, len(x.shape))
    wide = cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x
    ones = op.ones([x.shape[a] for a in axes], wide.dtype)
    found = op.nn.layer_norm(
        wide, ones if gamma is None else cast(gamma, wide.dtype), ones if beta is None else cast(beta, wide.dtype),
        axes=axes, epsilon=_epsilon(c.epsilon), center=beta is not None, scale=gamma is not None,
    )  # fmt: skip
    return cast(found, x.dtype)


@KERAS.register("ops.RMSNorm")
def rms_normalization(c: Call, x: Any, scale: Any = None) -> Any:
    axes, epsilon = _axes(c.axis, len(x.shape)), _epsilon(c.epsilon)
    wide = cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x
    sizes = [x.shape[a] for a in axes]
    if scale is not None and list(scale.shape) != sizes:
        inverse = op.rsqrt(op.mean(op.square(wide), axes, True) + epsilon)
        return cast(wide * inverse * cast(scale, wide.dtype), x.dtype)
    weight = op.ones(sizes, wide.dtype) if scale is None else cast(scale, wide.dtype)
    return cast(op.nn.rms_norm(wide, weight, axes=axes, epsilon=epsilon), x.dtype)


@KERAS.register("ops.Normalize")
def normalize(c: Call, x: Any) -> Any:
    axes = _axes(c.axis, len(x.shape))
    epsilon = _epsilon(c.epsilon)
    x = as_float(c, x)
    if c.order == 2:
        return x * op.rsqrt(op.maximum(op.sum(op.square(x), axes, True), cast(epsilon**2, x.dtype)))
    return x / op.maximum(op.norm(x, ord=float(c.order), axis=axes, keepdims=True), cast(epsilon, x.dtype))


# -- attention, classes


_LEAST = {"float64": -1.7976931348623157e308, "float32": -3.4028235e38, "bfloat16": -3.38e38, "float16": -65504.0}


@KERAS.register("ops.DotProductAttention")
def dot_product_attention(
    c: Call, query: Any, key: Any, value: Any, bias: Any = None, mask: Any = None, scale: Any = None
) -> Any:
    if c.attn_logits_soft_cap is not None:
        raise UserError("attention with a soft cap of its logits is not converted")
    query, key, value = (c.cast(v) for v in (query, key, value))
    terms = [] if bias is None else [c.cast(bias)]
    if mask is not None:  # rows that are masked altogether attend to all keys alike, as in Keras
        zero, least = (const(v, c.dtype) for v in (0.0, 0.7 * _LEAST[c.dtype]))
        terms.append(op.where(cast(mask, "bool"), zero, least))
    added = sum(terms[1:], terms[0]) if terms else None
    return op.nn.attention(
        query, key, value, added, None if scale is None else float(scale),
        causal_mask="TopLeft" if c.is_causal else None,
    )  # fmt: skip


@KERAS.register("ops.OneHot")
def one_hot(c: Call, x: Any) -> Any:
    return _one_hot(x, c.num_classes, c.axis, c.dtype)


def _one_hot(x: Any, depth: int, axis: int, dtype: str) -> Any:
    indices = x if "int" in x.dtype else cast(x, "int64")
    return cast(op.one_hot(indices, 1.0, 0.0, depth, axis), dtype)


@KERAS.register("ops.MultiHot")
def multi_hot(c: Call, inputs: Any) -> Any:
    return op.max(_one_hot(inputs, c.num_classes, c.axis, c.dtype), 1 if len(inputs.shape) > 1 else 0)


@KERAS.register("ops.DepthToSpace")
def depth_to_space(c: Call, x: Any) -> Any:
    return op.nn.depth_to_space(x, c.block_size, layout(c.data_format, 2))


@KERAS.register("ops.SpaceToDepth")
def space_to_depth(c: Call, x: Any) -> Any:
    return op.nn.space_to_depth(x, c.block_size, layout(c.data_format, 2))


@KERAS.register("ops.ReLU")
def relu_with_limits(c: Call, x: Any) -> Any:
    """keras.activations.relu: x between threshold and max_value, below it negative_slope·(x - threshold)."""
    slope, limit, least = float(c.negative_slope), c.max_value, float(c.threshold)
    if slope and limit is None and not least:
        return op.nn.leakyrelu(x, slope)
    if least:
        found = op.where(op.greater(x, least), x, op.zeros_like(x))
    else:
        found = op.nn.relu6(x) if limit == 6 else op.nn.relu(x)
    if limit is not None and (least or limit != 6):
        found = op.minimum(op.maximum(found, cast(0.0, x.dtype)), cast(float(limit), x.dtype))
    return found - slope * op.nn.relu(least - x) if slope else found


@KERAS.register("ops.Mish")
def mish(c: Call, x: Any) -> Any:
    return op.nn.mish(x)


# -- cross entropies


def _log_probabilities(c: Call, output: Any, axis: int) -> Any:
    """Of logits, or of probabilities that need not add up to 1, kept away from 0 and 1 as Keras does."""
    if c.from_logits:
        return op.nn.log_softmax(output, axis)
    return op.log(_inside(output / op.sum(output, axis, True)))


def _inside(probabilities: Any) -> Any:
    epsilon = _epsilon(None)
    return op.clip(probabilities, epsilon, 1.0 - epsilon)


@KERAS.register("ops.CategoricalCrossentropy")
def categorical_crossentropy(c: Call, target: Any, output: Any) -> Any:
    logs = _log_probabilities(c, output, c.axis)
    return op.negative(op.sum(cast(target, output.dtype) * logs, c.axis))


@KERAS.register("ops.SparseCategoricalCrossentropy")
def sparse_categorical_crossentropy(c: Call, target: Any, output: Any) -> Any:
    if len(target.shape) == len(output.shape) and target.shape[-1] == 1:
        target = op.squeeze(target, -1)
    indices = cast(target, "int64")
    if c.from_logits and len(output.shape) == 2 and c.axis in (-1, 1):
        return op.nn.nll_loss(op.nn.log_softmax(output, -1), indices, None, "none")
    hot = op.one_hot(indices, 1.0, 0.0, output.shape[c.axis], c.axis)
    return op.negative(op.sum(cast(hot, output.dtype) * _log_probabilities(c, output, c.axis), c.axis))


@KERAS.register("ops.BinaryCrossentropy")
def binary_crossentropy(c: Call, target: Any, output: Any) -> Any:
    target = cast(target, output.dtype)
    if c.from_logits:
        return op.negative(target * op.nn.logsigmoid(output) + (1.0 - target) * op.nn.logsigmoid(-output))
    output = _inside(output)
    return op.negative(target * op.log(output) + (1.0 - target) * op.log(1.0 - output))
