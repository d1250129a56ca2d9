"""Operators that are derivatives: what AOTAutograd's graphs of a backward pass have.

Most are the adjoint of an operator of the table, which is differentiated here. Those that get what the forward pass
saved, such as the mean and 1/σ of a norm, compute with that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback.ir.errors import UserError
from pullback.ir.module import IRModule
from pullback.nn.trace import active_trace
from pullback.relax import op
from pullback.relax.control import traced
from pullback.relax.expr import Expr
from pullback.relax.frontend.torch.aten.promotion import as_dtype, tensor
from pullback.relax.frontend.torch.aten.shape import axes_of, axis_of, diagonal, select, slice_, unfold
from pullback.relax.frontend.torch.table import ATEN
from pullback.relax.mutator import emit_body
from pullback.relax.op.reduction.reduce import scalar_count
from pullback.relax.transform import Gradient


def adjoints(function: Callable[..., Any], inputs: Sequence[Any], dy: Any) -> tuple[Any, ...]:
    """The adjoints of tensors by ``function`` of them, for the adjoint ``dy`` of its result."""
    trace = active_trace()
    bound = [trace.bind(x, "lv") for x in (*inputs, dy)]

    def product(*values: Any) -> Any:
        return op.sum(function(*values[:-1]) * values[-1])

    module = IRModule({"product": traced(product, [x.struct_info for x in bound])})
    wanted = [p.name for p in module["product"].params[:-1]]
    adjoint = Gradient("product", wanted)(module)["product_adjoint"]
    result = emit_body(adjoint, dict(zip(adjoint.params, bound, strict=True)), trace.builder)
    return tuple(result.fields[1].fields)


def _forward(name: str) -> Callable[..., Any]:
    """What an operator of the table computes, of several results the first."""

    def run(*args: Any, **kwargs: Any) -> Any:
        found = ATEN.function(name)(*args, **kwargs)
        return found if isinstance(found, Expr) else found[0]

    return run


# -- the adjoint of the first input, of operators that take the same settings


def _of_input(name: str, settings: int | None = None) -> None:
    """``name_backward(grad, self, …)`` of ``name(self, …)``, with as many of its settings."""
    forward = _forward(f"aten.{name}")

    def backward(grad: Any, x: Any, *rest: Any, **options: Any) -> Any:
        return adjoints(lambda v: forward(v, *rest[:settings], **options), [x], grad)[0]

    ATEN.register(f"aten.{name}_backward")(backward)


for _name in (
    "gelu", "silu", "mish", "hardswish", "hardsigmoid", "hardtanh", "softplus", "glu", "hardshrink", "softshrink",
    "avg_pool2d", "avg_pool3d", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d",
    "replication_pad2d", "replication_pad3d", "mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
    "soft_margin_loss", "logit",
):  # fmt: skip
    _of_input(_name)
_of_input("max_pool2d_with_indices", 5)  # without the places: they are found again
_of_input("max_pool3d_with_indices", 5)


@ATEN.register("aten.threshold_backward")
def threshold_backward(grad: Any, x: Any, threshold: Any) -> Any:
    zero = tensor(0, grad.dtype)
    return op.where(op.greater(x, tensor(threshold, x.dtype)), grad, zero)


@ATEN.register("aten.leaky_relu_backward")
def leaky_relu_backward(grad: Any, x: Any, slope: Any, self_is_result: bool) -> Any:
    return op.where(op.greater(x, tensor(0, x.dtype)), grad, grad * float(slope))


@ATEN.register("aten.elu_backward")
def elu_backward(grad: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Any) -> Any:
    factor = float(input_scale)
    if is_result:  # of elu's result: scale·alpha·eˣ is the result + scale·alpha
        slope = (x + float(alpha) * float(scale)) * factor
    else:
        slope = op.exp(x * factor) * (float(alpha) * float(scale) * factor)
    positive = op.greater(x, tensor(0, x.dtype))
    return grad * op.where(positive, tensor(float(scale), x.dtype), slope)


@ATEN.register("aten.log_sigmoid_backward")
def log_sigmoid_backward(grad: Any, x: Any, buffer: Any) -> Any:
    return grad * op.sigmoid(op.negative(x))


@ATEN.register("aten._prelu_kernel_backward")
def prelu_kernel_backward(grad: Any, x: Any, weight: Any) -> tuple[Any, Any]:
    """Both in the shape of x."""
    positive, zero = op.greater(x, tensor(0, x.dtype)), tensor(0, x.dtype)
    return op.where(positive, grad, grad * weight), op.where(positive, zero, grad * x)


@ATEN.register("aten.tanh_backward")
def tanh_backward(grad: Any, y: Any) -> Any:
    return grad * (1.0 - y * y)


@ATEN.register("aten.sigmoid_backward")
def sigmoid_backward(grad: Any, y: Any) -> Any:
    return grad * (y * (1.0 - y))


@ATEN.register("aten._softmax_backward_data")
def softmax_backward(grad: Any, y: Any, dim: int, input_dtype: str) -> Any:
    return as_dtype(y * (grad - op.vecdot(grad, y, dim, True)), input_dtype)


@ATEN.register("aten._log_softmax_backward_data")
def log_softmax_backward(grad: Any, y: Any, dim: int, input_dtype: str) -> Any:
    return as_dtype(grad - op.exp(y) * op.sum(grad, dim, True), input_dtype)


@ATEN.register("aten.native_dropout_backward")
def native_dropout_backward(grad: Any, mask: Any, scale: float) -> Any:
    return grad * as_dtype(mask, grad.dtype) * float(scale)


# -- of parts, which do not depend on the values


def _of_part(name: str, forward: Callable[..., Any]) -> None:
    """``name_backward(grad, sizes of the input, …)``."""

    def backward(grad: Any, sizes: Sequence[Any], *rest: Any) -> Any:
        return adjoints(lambda x: forward(x, *rest), [op.zeros(tuple(sizes), grad.dtype)], grad)[0]

    ATEN.register(f"aten.{name}_backward")(backward)


for _name, _function in {"select": select, "slice": slice_, "diagonal": diagonal, "unfold": unfold}.items():
    _of_part(_name, _function)


@ATEN.register("aten.value_selecting_reduction_backward")
def value_selecting_reduction_backward(grad: Any, dim: int, indices: Any, sizes: Sequence[Any], keepdim: bool) -> Any:
    if not sizes:
        return grad
    axis = axis_of(dim, len(sizes))
    grad, indices = (v if keepdim else op.expand_dims(v, axis) for v in (grad, indices))
    return op.scatter_elements(op.zeros(tuple(sizes), grad.dtype), indices, grad, axis)


# -- embeddings, pooling, losses


@ATEN.register("aten.embedding_dense_backward")
def embedding_dense_backward(
    grad: Any, indices: Any, count: Any, padding_idx: int, scale_grad_by_freq: bool
) -> Any:  # fmt: skip
    if scale_grad_by_freq:
        raise UserError("embedding with scale_grad_by_freq=True cannot be converted", hint="leave it out")
    result = op.take_gradient(grad, indices, count, 0)
    if padding_idx < 0:
        return result
    row = op.arange(0, count, 1, "int64")
    trained = op.not_equal(row, tensor(padding_idx, "int64"))
    return op.where(op.expand_dims(trained, 1), result, tensor(0, result.dtype))


def _adaptive(rank: int) -> None:
    forward = _forward(f"aten._adaptive_avg_pool{rank}d")

    def backward(grad: Any, x: Any) -> Any:
        return adjoints(lambda v: forward(v, grad.shape[-rank:]), [x], grad)[0]

    ATEN.register(f"aten._adaptive_avg_pool{rank}d_backward")(backward)


_adaptive(2)
_adaptive(3)


@ATEN.register("aten.nll_loss_backward", "aten.nll_loss2d_backward")
def nll_loss_backward(
    grad: Any, x: Any, target: Any, weight: Any, reduction: int, ignore_index: int, total_weight: Any
) -> Any:  # fmt: skip
    forward = _forward("aten.nll_loss")
    return adjoints(lambda v: forward(v, target, weight, reduction, ignore_index), [x], grad)[0]


# -- convolutions, attention


@ATEN.register("aten.convolution_backward")
def convolution_backward(
    grad: Any, x: Any, weight: Any, bias_sizes: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, output_mask: Sequence[bool],
) -> tuple[Any, ...]:  # fmt: skip
    forward, settings = _forward("aten.convolution"), (stride, padding, dilation, transposed, output_padding, groups)
    dx, dw = adjoints(lambda v, w: forward(v, w, None, *settings), [x, weight], grad)
    channels = len(grad.shape) - len(weight.shape) + 1
    others = [a for a in range(len(grad.shape)) if a != channels]
    found = (dx, dw, lambda: op.sum(grad, others))
    return tuple(g if wanted else None for g, wanted in zip(found, output_mask, strict=True))


@ATEN.register("aten._scaled_dot_product_flash_attention_for_cpu_backward")
def attention_backward(
    grad: Any, query: Any, key: Any, value: Any, out: Any, logsumexp: Any, dropout_p: float, is_causal: bool, *,
    attn_mask: Any, scale: float | None,
) -> tuple[Any, ...]:  # fmt: skip
    forward = _forward("aten.scaled_dot_product_attention")

    def attend(q: Any, k: Any, v: Any) -> Any:
        return forward(q, k, v, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=False)

    return adjoints(attend, [query, key, value], grad)


# -- norms: with x̂ = (x - mean)·r and d = dy·weight, dx = r·(d - mean d - x̂·mean(d·x̂))


def _normal_adjoint(d: Any, normal: Any, inverse: Any, axes: Sequence[int]) -> Any:
    n = scalar_count(d, axes)
    mean_d, mean_product = op.sum(d, axes, True) / n, op.vecdot(d, normal, axes, True) / n
    return inverse * (d - mean_d - normal * mean_product)


def _wanted(found: Sequence[Any], output_mask: Sequence[bool]) -> tuple[Any, ...]:
    return tuple(g if wanted else None for g, wanted in zip(found, output_mask, strict=True))


@ATEN.register("aten.native_layer_norm_backward")
def native_layer_norm_backward(
    grad: Any, x: Any, normalized_shape: Sequence[Any], mean: Any, rstd: Any, weight: Any, bias: Any,
    output_mask: Sequence[bool],
) -> tuple[Any, ...]:  # fmt: skip
    rank = len(x.shape)
    axes = list(range(rank - len(normalized_shape), rank))
    rest = [a for a in range(rank) if a not in axes]
    normal = (x - mean) * rstd
    dx = _normal_adjoint(grad if weight is None else grad * weight, normal, rstd, axes)
    return _wanted((dx, op.vecdot(grad, normal, rest), op.sum(grad, rest)), output_mask)


@ATEN.register("aten.native_group_norm_backward")
def native_group_norm_backward(
    grad: Any, x: Any, mean: Any, rstd: Any, weight: Any, rows: Any, channels: int, size: Any, group: int,
    output_mask: Sequence[bool],
) -> tuple[Any, ...]:  # fmt: skip
    shape = (rows, group, channels // group, *x.shape[2:])
    axes = list(range(2, len(shape)))
    mean, rstd = (op.expand_dims(op.reshape(v, (rows, group)), axes) for v in (mean, rstd))
    dy, data = op.reshape(grad, shape), op.reshape(x, shape)
    normal = (data - mean) * rstd
    scale = None if weight is None else op.reshape(weight, (group, channels // group, *[1] * (len(shape) - 3)))
    dx = _normal_adjoint(dy if scale is None else dy * scale, normal, rstd, axes)
    others = [0, *range(3, len(shape))]
    dw, db = op.vecdot(dy, normal, others), op.sum(dy, others)
    flat = (op.reshape(dx, x.shape), op.reshape(dw, (channels,)), op.reshape(db, (channels,)))
    return _wanted(flat, output_mask)


@ATEN.register("aten.native_batch_norm_backward")
def native_batch_norm_backward(
    grad: Any, x: Any, weight: Any, running_mean: Any, running_var: Any, save_mean: Any, save_invstd: Any, train: bool,
    eps: float, output_mask: Sequence[bool],
) -> tuple[Any, ...]:  # fmt: skip
    rank = len(x.shape)
    others = [a for a in range(rank) if a != 1]

    def spread(v: Any) -> Any:
        return op.expand_dims(v, axes_of(others, rank))

    mean, inverse = (save_mean, save_invstd) if train else (running_mean, op.rsqrt(running_var + eps))
    normal = (x - spread(mean)) * spread(inverse)
    d = grad if weight is None else grad * spread(weight)
    dx = _normal_adjoint(d, normal, spread(inverse), others) if train else d * spread(inverse)
    return _wanted((dx, op.vecdot(grad, normal, others), op.sum(grad, others)), output_mask)
