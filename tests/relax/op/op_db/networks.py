"""Layers: convolution, pooling, norms, images, attention, dropout."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pullback.relax.op.namespace import ops
from tests.relax.op.op_db.table import Skip, translate


def batched(x: Any, spatial: int, f: Callable[[Any], Any]) -> Any:
    """f of images with a batch axis: PyTorch also takes one image."""
    return f(x) if len(x.shape) == spatial + 2 else ops.squeeze(f(ops.expand_dims(x, 0)), 0)


def same_padding(padding: Any, weight: Any, dilation: Any, spatial: int) -> Any:
    """Numbers for 'valid' and 'same': what is odd goes behind."""
    if not isinstance(padding, str):
        return padding
    if padding == "valid":
        return 0
    dilations = [dilation] * spatial if isinstance(dilation, int) else list(dilation) * (spatial // len(dilation))
    total = [d * (k - 1) for d, k in zip(dilations, weight.shape[2:], strict=True)]
    return [n // 2 for n in total] + [n - n // 2 for n in total]


for _n in (1, 2, 3):

    @translate(f"nn.conv{_n}d", f"nn.functional.conv{_n}d")
    def conv(
        x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
        _n: int = _n,
    ) -> Any:  # fmt: skip
        padding = same_padding(padding, weight, dilation, _n)
        conv = getattr(ops.nn, f"conv{_n}d")
        y = batched(x, _n, lambda x: conv(x, weight, stride, padding, dilation, groups))
        return y if bias is None else ops.add(y, ops.reshape(bias, (-1,) + (1,) * _n))

    @translate(f"nn.conv{_n}d_transpose", f"nn.functional.conv_transpose{_n}d")
    def conv_transpose(
        x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
        groups: int = 1, dilation: Any = 1, _n: int = _n,
    ) -> Any:  # fmt: skip
        numbers = zip(
            *((v,) * _n if isinstance(v, int) else (v * _n)[:_n] for v in (stride, output_padding)), strict=True
        )
        if any(out >= step for step, out in numbers):
            raise Skip("an output padding that is no smaller than the stride")
        transpose = getattr(ops.nn, f"conv{_n}d_transpose")
        y = batched(x, _n, lambda x: transpose(x, weight, stride, padding, output_padding, dilation, groups))
        return y if bias is None else ops.add(y, ops.reshape(bias, (-1,) + (1,) * _n))

    @translate(f"nn.avg_pool{_n}d", f"nn.functional.avg_pool{_n}d")
    def avg_pool(
        x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: Any = None, _n: int = _n,
    ) -> Any:  # fmt: skip
        if divisor_override is not None:
            raise Skip("a divisor of one's own")
        stride = kernel_size if stride is None or stride == () else stride
        pool = getattr(ops.nn, f"avg_pool{_n}d")
        sizes = kernel_size, stride, padding, 1, ceil_mode, count_include_pad
        return batched(x, _n, lambda x: pool(x, *sizes))

    @translate(f"nn.max_pool{_n}d", f"nn.functional.max_pool{_n}d")
    def max_pool(
        x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
        return_indices: bool = False, _n: int = _n,
    ) -> Any:  # fmt: skip
        stride = kernel_size if stride is None or stride == () else stride
        pool = getattr(ops.nn, f"max_pool{_n}d")
        y = batched(x, _n, lambda x: pool(x, kernel_size, stride, padding, dilation, ceil_mode))
        return (y, None) if return_indices else y

    @translate(f"nn.adaptive_avg_pool{_n}d", f"nn.functional.adaptive_avg_pool{_n}d")
    def adaptive_avg_pool(x: Any, output_size: Any, _n: int = _n) -> Any:
        sizes = output_size
        if not isinstance(sizes, int):
            sizes = [s if s is not None else n for s, n in zip(sizes, x.shape[-_n:], strict=True)]
        return batched(x, _n, lambda x: getattr(ops.nn, f"adaptive_avg_pool{_n}d")(x, sizes))


# ---- norms -----------------------------------------------------------------------------------------------------------


def per_channel(value: Any, x: Any, default: float) -> Any:
    return ops.full((x.shape[1],), default, x.dtype) if value is None else value


@translate("nn.batch_norm", "nn.functional.batch_norm")
def batch_norm(
    x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, training: bool = False, momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:  # fmt: skip
    if len(x.shape) < 2:
        raise Skip("a batch norm without channels")
    values = [per_channel(v, x, d) for v, d in ((weight, 1.0), (bias, 0.0), (mean, 0.0), (var, 1.0))]
    return ops.nn.batch_norm(x, *values, 1, eps, True, True, momentum, training or mean is None)[0]


@translate("nn.batch_norm", "native_batch_norm")
def native_batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    return batch_norm(x, mean, var, weight, bias, training, momentum, eps), None, None


@translate("nn.layer_norm", "nn.functional.layer_norm")
def layer_norm(x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    shape = tuple(shape)
    weight = ops.ones(shape, x.dtype) if weight is None else weight
    bias = ops.zeros(shape, x.dtype) if bias is None else bias
    return ops.nn.layer_norm(x, weight, bias, list(range(-len(shape), 0)), eps)


@translate("nn.layer_norm", "native_layer_norm")
def native_layer_norm(*args: Any) -> Any:
    return layer_norm(*args), None, None


@translate("nn.group_norm", "native_group_norm")
def native_group_norm(x: Any, weight: Any, bias: Any, n: int, c: int, hw: int, groups: int, eps: float) -> Any:
    return group_norm(x, groups, weight, bias, eps), None, None


@translate("nn.rms_norm", "nn.functional.rms_norm")
def rms_norm(x: Any, shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    if eps is None:
        eps = 2.0**-52 if x.dtype == "float64" else 2.0**-23
    weight = ops.ones(tuple(shape), x.dtype) if weight is None else weight
    return ops.nn.rms_norm(x, weight, list(range(-len(shape), 0)), eps)


@translate("nn.group_norm", "nn.functional.group_norm")
def group_norm(x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    values = per_channel(weight, x, 1.0), per_channel(bias, x, 0.0)
    return ops.nn.group_norm(x, *values, groups, 1, list(range(2, len(x.shape))), eps)


@translate("nn.instance_norm", "nn.functional.instance_norm")
def instance_norm(
    x: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    if not use_input_stats:
        raise Skip("an instance norm by running statistics")
    values = per_channel(weight, x, 1.0), per_channel(bias, x, 0.0)
    return ops.nn.instance_norm(x, *values, 1, list(range(2, len(x.shape))), eps)


# ---- images ----------------------------------------------------------------------------------------------------------

LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
METHODS = {"nearest": "nearest_neighbor", "nearest-exact": "nearest_neighbor", "bicubic": "cubic"}


@translate("image.resize1d, image.resize2d", *(f"nn.functional.interpolate.{m}" for m in ("nearest", "nearest-exact")))
@translate("image.resize1d", "nn.functional.interpolate.linear")
@translate("image.resize2d", *(f"nn.functional.interpolate.{m}" for m in ("bilinear", "bicubic")))
@translate("image.resize3d", "nn.functional.interpolate.trilinear")
def interpolate(
    x: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None,
    recompute_scale_factor: Any = None, antialias: bool = False,
) -> Any:  # fmt: skip
    spatial = len(x.shape) - 2
    if antialias:
        raise Skip("antialiasing")
    if scale_factor is not None:
        scales = [scale_factor] * spatial if isinstance(scale_factor, (int, float)) else list(scale_factor)
        size = [math.floor(n * s) for n, s in zip(x.shape[2:], scales, strict=True)]
        exact = all(n * s == m for n, s, m in zip(x.shape[2:], scales, size, strict=True))
        if not exact and not recompute_scale_factor and not align_corners:
            raise Skip("a scale that is not the ratio of the sizes")
    size = [size] * spatial if isinstance(size, int) else list(size)
    if align_corners:
        places, rounding = "align_corners", "round"
    elif mode == "nearest":
        places, rounding = "asymmetric", "floor"
    elif mode == "nearest-exact":
        places, rounding = "half_pixel", "round_prefer_ceil"
    else:
        places, rounding = "half_pixel", "round"
    resize = getattr(ops.image, f"resize{spatial}d")
    method = METHODS.get(mode, "linear")
    return resize(
        x, size, layout=LAYOUTS[spatial], method=method, coordinate_transformation_mode=places,
        rounding_method=rounding, cubic_alpha=-0.75,
    )  # fmt: skip


@translate("nn.adaptive_avg_pool1d, nn.adaptive_avg_pool2d", "nn.functional.interpolate.area")
def interpolate_area(x: Any, size: Any = None, scale_factor: Any = None, mode: str = "area", **places: Any) -> Any:
    if scale_factor is not None:
        scales = [scale_factor] * 3 if isinstance(scale_factor, (int, float)) else list(scale_factor)
        size = [math.floor(n * s) for n, s in zip(x.shape[2:], scales, strict=False)]
    return getattr(ops.nn, f"adaptive_avg_pool{len(x.shape) - 2}d")(x, size)


@translate("image.resize2d", "nn.functional.upsample_bilinear")
def upsample_bilinear(x: Any, size: Any = None, scale_factor: Any = None) -> Any:
    return interpolate(x, size, scale_factor, "bilinear", True)


@translate("image.resize1d, image.resize2d, image.resize3d", "nn.functional.upsample_nearest")
def upsample_nearest(x: Any, size: Any = None, scale_factor: Any = None) -> Any:
    return interpolate(x, size, scale_factor, "nearest")


@translate("image.grid_sample", "nn.functional.grid_sample")
def grid_sample(
    x: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Any:
    layout = LAYOUTS[len(x.shape) - 2]
    moved = ops.permute_dims(grid, [0, len(x.shape) - 1, *range(1, len(x.shape) - 1)])
    return ops.image.grid_sample(x, moved, mode, layout, padding_mode, bool(align_corners))


@translate("image.grid_sample", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(x: Any, grid: Any, mode: int, padding: int, align_corners: bool) -> Any:
    names = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    return grid_sample(x, grid, names[0][mode], names[1][padding], align_corners)


# ---- the rest --------------------------------------------------------------------------------------------------------


@translate("nn.attention", "nn.functional.scaled_dot_product_attention")
def attention(
    q: Any, k: Any, v: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, scale: Any = None,
    enable_gqa: bool = False,
) -> Any:  # fmt: skip
    if dropout_p:
        raise Skip("dropout draws numbers of its own")
    if attn_mask is not None and attn_mask.dtype == "bool":
        attn_mask = ops.where(attn_mask, ops.full((), 0.0, q.dtype), ops.full((), -math.inf, q.dtype))
    if len({len(x.shape) for x in (q, k, v)}) > 1:
        raise Skip("ranks that differ")
    if len(q.shape) == 3:
        q, k, v = (ops.expand_dims(t, 1) for t in (q, k, v))
        result = attention(q, k, v, attn_mask, 0.0, is_causal, scale)
        return ops.squeeze(result, 1)
    swap = [0, 2, 1, 3]
    q, k, v = (ops.permute_dims(t, swap) for t in (q, k, v))
    result = ops.nn.attention(q, k, v, attn_mask, scale, "TopLeft" if is_causal else None)
    return ops.permute_dims(result, swap)


@translate("dropout, nn.dropout", "nn.functional.dropout")
def dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if training and p > 0:
        raise Skip("dropout draws numbers of its own")
    return ops.add(ops.dropout(x, p=p, training=False), ops.nn.dropout(x, rate=p, training=False)[0]) * 0.5


@translate("nn.cosine_similarity", "nn.functional.cosine_similarity")
def cosine_similarity(x: Any, y: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    return ops.nn.cosine_similarity(x, y, dim, eps)
