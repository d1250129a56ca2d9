"""Functions of tensors under TVM's names and argument order (``tvm.relax.frontend.nn.op``). ``name=`` names a result in
TVM; here a result has the name that it is assigned to, or its module's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pullback.ir.errors import UserError
from pullback.ir.op import Op
from pullback.nn import functional as F
from pullback.relax import op as _op
from pullback.relax.op.methods import METHODS

# Ops whose arguments are TVM's.
_SAME = [
    "add", "arange", "argsort", "astype", "broadcast_to", "cumsum", "divide", "equal", "exp", "gather_elements",
    "greater", "greater_equal", "less", "less_equal", "matmul", "max", "maximum", "min", "minimum", "multiply",
    "negative", "not_equal", "permute_dims", "repeat", "reshape", "sigmoid", "sort", "sqrt", "square", "subtract",
    "sum", "take", "tanh", "tril", "triu", "topk", "where", "nn.log_softmax", "nn.pad", "nn.relu", "nn.rms_norm",
    "nn.silu", "nn.softmax", "nn.softplus",
]  # fmt: skip
_EFFECTS = ("print_", "debug_func", "extern", "tensor_expr_op", "tensor_ir_op")

__all__ = [
    "chunk", "concat", "conv1d", "conv1d_transpose", "conv2d", "conv3d", "empty", "full", "gelu", "group_norm",
    "interpolate", "layer_norm", "linear", "ones", "permute", "scaled_dot_product_attention", "split", "squeeze",
    "unsqueeze", "zeros", *(name.rpartition(".")[2] for name in _SAME), *_EFFECTS,
]  # fmt: skip


def _same(name: str) -> Callable[..., Any]:
    op = Op.get(name)

    def call(*args: Any, name: str = "", **kwargs: Any) -> Any:
        return op(*args, **kwargs)

    call.__name__, call.__doc__ = name.rpartition(".")[2], op.doc
    return call


def _refused(name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise UserError(
            f"nn.op.{name} has effects, or calls other code, which a graph cannot do here",
            hint="return what is to be printed; relax.op.register_op adds an op of one's own",
        )

    call.__name__, call.__doc__ = name, "Not there: an error that says so."
    return call


globals().update({name.rpartition(".")[2]: _same(name) for name in _SAME})
globals().update({name: _refused(name) for name in _EFFECTS})
if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., Any]: ...  # the names above


def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """x · weightᵀ + bias."""
    return F.linear(x, weight, bias)


def unsqueeze(x: Any, dim: int, name: str = "") -> Any:
    """x with an axis of size 1 at ``dim``."""
    return _op.expand_dims(x, dim)


def squeeze(x: Any, axis: int | None = -1, name: str = "") -> Any:
    """x without an axis of size 1; without all of them where ``axis`` is None."""
    return _op.squeeze(x, axis)


def concat(x: Sequence[Any], dim: int, name: str = "") -> Any:
    """Tensors one after the other along an axis."""
    return _op.concat(list(x), dim)


def chunk(x: Any, chunks: int, dim: int = 0, name: str = "") -> tuple[Any, ...]:
    """x in so many parts along an axis, the last of which may be smaller."""
    return METHODS["chunk"](x, chunks, dim)


def split(ary: Any, indices_or_sections: int | Sequence[int], axis: int = 0, name: str = "") -> tuple[Any, ...]:
    """Parts of a tensor: so many, or cut at these indices."""
    parts = _op.split(ary, indices_or_sections, axis)
    return tuple(parts[k] for k in range(len(parts.struct_info.fields)))


def permute(x: Any, axes: Sequence[int] | None, name: str = "") -> Any:
    """x with its axes in another order."""
    return _op.permute_dims(x, axes)


def gelu(x: Any, approximate: str | None = None, name: str = "") -> Any:
    """x · Φ(x); with ``approximate="tanh"`` its approximation."""
    return F.gelu(x, approximate or "none")


def layer_norm(
    x: Any, normalized_shape: int | Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5,
    name: str = "",
) -> Any:  # fmt: skip
    """(x - mean) / √(variance + eps) · weight + bias over the last axes, of the sizes ``normalized_shape``."""
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    return F.layer_norm(x, shape, weight, bias, eps)


def group_norm(
    x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, channel_axis: int = 1,
    axes: Sequence[int] | None = None, name: str = "",
) -> Any:  # fmt: skip
    """(x - mean) / √(variance + eps) · weight + bias for each group of channels; ``axes`` are by default all after the
    first two."""
    channels = (x.shape[channel_axis],)
    gamma = _op.ones(channels, x.dtype) if weight is None else weight
    beta = _op.zeros(channels, x.dtype) if bias is None else bias
    over = list(range(2, len(x.shape))) if axes is None else list(axes)
    return _op.nn.group_norm(x, gamma, beta, num_groups, channel_axis, over, epsilon=eps)


def conv1d(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
    name: str = "",
) -> Any:  # fmt: skip
    """A convolution of (N, C, L) with a weight (out, C / groups, kernel)."""
    return F.conv1d(x, weight, bias, stride, padding, dilation, groups)


def conv2d(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
    name: str = "",
) -> Any:  # fmt: skip
    """A convolution of (N, C, H, W) with a weight (out, C / groups, kernel, kernel)."""
    return F.conv2d(x, weight, bias, stride, padding, dilation, groups)


def conv3d(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
    name: str = "",
) -> Any:  # fmt: skip
    """A convolution of (N, C, D, H, W) with a weight (out, C / groups, kernel, kernel, kernel)."""
    return F.conv3d(x, weight, bias, stride, padding, dilation, groups)


def conv1d_transpose(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    dilation: Any = 1, groups: int = 1, name: str = "",
) -> Any:  # fmt: skip
    """The transpose of a convolution, of (N, C, L) with a weight (C, out / groups, kernel)."""
    return F.conv_transpose1d(x, weight, bias, stride, padding, output_padding, groups, dilation)


def scaled_dot_product_attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, is_causal: bool | None = False,
    scale: float | None = None, name: str = "",
) -> Any:  # fmt: skip
    """softmax(scale · query·keyᵀ + attn_mask) · value with TVM's axes: (batch, length, heads, size)."""
    causal = "TopLeft" if is_causal else None
    return _op.nn.attention(query, key, value, attn_mask, scale, causal)


def interpolate(
    x: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None, antialias: bool | None = None, name: str = "",
) -> Any:  # fmt: skip
    """Images with other heights and widths, as ``nn.functional.interpolate``."""
    return F.interpolate(x, size, scale_factor, mode, align_corners, recompute_scale_factor, bool(antialias))


def full(shape: Sequence[Any], fill_value: Any, dtype: str = "float32", name: str = "") -> Any:
    """A tensor of one value."""
    return _op.full(tuple(shape), fill_value, dtype)


def zeros(shape: Sequence[Any], dtype: str = "float32", name: str = "") -> Any:
    """A tensor of zeros."""
    return _op.zeros(tuple(shape), dtype)


def ones(shape: Sequence[Any], dtype: str = "float32", name: str = "") -> Any:
    """A tensor of ones."""
    return _op.ones(tuple(shape), dtype)


def empty(shape: Sequence[Any], dtype: str = "float32", name: str = "") -> Any:
    """A tensor of any values: zeros here."""
    return _op.zeros(tuple(shape), dtype)
