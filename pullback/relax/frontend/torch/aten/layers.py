"""Layers: convolutions, linear maps, attention, embeddings and dropout, as ``torch.nn.functional`` calls them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from pullback.ir.errors import ArgumentError, UserError
from pullback.nn import functional as F
from pullback.nn.functional.attention import attention_weights, logit_bias
from pullback.relax import op
from pullback.relax.expr import const
from pullback.relax.frontend.torch.table import ATEN

ATEN.same({"aten.relu": op.nn.relu, "aten.linear": F.linear, "aten.bilinear": F.bilinear})


# -- convolutions

_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def each_axis(value: Any, rank: int) -> Any:
    """A number for each spatial axis: PyTorch gives one for all as a list of one."""
    if isinstance(value, (tuple, list)):
        return tuple(value) * rank if len(value) == 1 else tuple(value)
    return value


def _add_convolutions() -> None:
    for rank, function in _CONVOLUTIONS.items():

        def conv(
            input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int,
            _function: Callable[..., Any] = function, _rank: int = rank,
        ) -> Any:  # fmt: skip
            stride, padding, dilation = (each_axis(v, _rank) for v in (stride, padding, dilation))
            return _function(input, weight, bias, stride, padding, dilation, groups)

        ATEN.register(f"aten.conv{rank}d")(conv)

    for rank, inverse in _TRANSPOSED.items():

        def transposed(
            input: Any, weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, groups: int,
            dilation: Any, _function: Callable[..., Any] = inverse, _rank: int = rank,
        ) -> Any:  # fmt: skip
            stride, padding, more, dilation = (each_axis(v, _rank) for v in (stride, padding, output_padding, dilation))
            return _function(input, weight, bias, stride, padding, more, groups, dilation)

        ATEN.register(f"aten.conv_transpose{rank}d")(transposed)


_add_convolutions()


@ATEN.register("aten.convolution", "aten._convolution")
def convolution(
    input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, *flags: Any,
) -> Any:  # fmt: skip
    rank = len(weight.shape) - 2
    stride, padding, dilation = (each_axis(v, rank) for v in (stride, padding, dilation))
    if transposed:
        more = each_axis(output_padding, rank)
        return _TRANSPOSED[rank](input, weight, bias, stride, padding, more, groups, dilation)
    return _CONVOLUTIONS[rank](input, weight, bias, stride, padding, dilation, groups)


# -- attention


@ATEN.register("aten.scaled_dot_product_attention")
def scaled_dot_product_attention(
    query: Any, key: Any, value: Any, attn_mask: Any, dropout_p: float, is_causal: bool, *, scale: float | None,
    enable_gqa: bool,
) -> Any:  # fmt: skip
    return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


@ATEN.register("aten._scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    query: Any, key: Any, value: Any, dropout_p: float, is_causal: bool, *, attn_mask: Any, scale: float | None
) -> Any:
    result = F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale)
    return result, lambda: _log_sums(query, key, attn_mask, is_causal, scale)


@ATEN.register("aten._scaled_dot_product_efficient_attention")
def efficient_attention(
    query: Any, key: Any, value: Any, attn_bias: Any, compute_log_sumexp: bool, dropout_p: float, is_causal: bool, *,
    scale: float | None,
) -> Any:  # fmt: skip
    result = F.scaled_dot_product_attention(query, key, value, attn_bias, dropout_p, is_causal, scale)
    return result, lambda: _log_sums(query, key, attn_bias, is_causal, scale), _no_seed, _no_seed


def _no_seed() -> Any:
    raise UserError("the state of random numbers in attention cannot be taken: they are drawn anew here")


def _log_sums(query: Any, key: Any, mask: Any, is_causal: bool, scale: float | None) -> Any:
    """The logarithms of the sums of softmax, (N, heads, L)."""
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    logits = op.matmul(query * factor, op.permute_dims(key, (0, 1, 3, 2)))
    if mask is not None:
        logits = logits + logit_bias(mask, query.dtype, "attention", "attn_mask", blocks=False)
    if is_causal:
        rows, keys = op.arange(query.shape[-2]), op.arange(key.shape[-2])
        seen = op.less_equal(keys, op.expand_dims(rows, 1))
        logits = op.where(seen, logits, const(-math.inf, logits.dtype))
    return op.astype(op.logsumexp(logits, -1), "float32")


@ATEN.register("aten._native_multi_head_attention")
def native_multi_head_attention(
    query: Any, key: Any, value: Any, embed_dim: int, num_head: int, qkv_weight: Any, qkv_bias: Any, proj_weight: Any,
    proj_bias: Any, mask: Any, need_weights: bool, average_attn_weights: bool, mask_type: int | None,
) -> Any:  # fmt: skip
    """What nn.MultiheadAttention calls in eval(): its bools keep places out."""
    parts = []
    for k, x in enumerate((query, key, value)):
        rows = slice(k * embed_dim, (k + 1) * embed_dim)
        x = F.linear(x, qkv_weight[rows], qkv_bias[rows])
        parts.append(op.reshape(x, (*x.shape[:2], num_head, embed_dim // num_head)))
    bias = None
    if mask is not None:
        bias = logit_bias(mask, query.dtype, "attention", "mask", blocks=True)
        if mask_type == 1:  # of keys, (N, S)
            bias = op.expand_dims(bias, (1, 2))
    weights = attention_weights(parts[0], parts[1], bias, False)
    heads = op.matmul(weights, op.permute_dims(parts[2], (0, 2, 1, 3)))
    joined = op.reshape(op.permute_dims(heads, (0, 2, 1, 3)), query.shape)
    shown = op.mean(weights, 1) if average_attn_weights else weights
    return F.linear(joined, proj_weight, proj_bias), shown if need_weights else None


# -- embeddings


@ATEN.register("aten.embedding")
def embedding(weight: Any, indices: Any, padding_idx: int, scale_grad_by_freq: bool, sparse: bool) -> Any:
    chosen = None if padding_idx == -1 else padding_idx
    return F.embedding(indices, weight, chosen, scale_grad_by_freq=scale_grad_by_freq)


@ATEN.register("aten.embedding_bag", "aten._embedding_bag", "aten._embedding_bag_forward_only")
def embedding_bag(
    weight: Any, indices: Any, offsets: Any, scale_grad_by_freq: bool, mode: int, sparse: bool,
    per_sample_weights: Any, include_last_offset: bool, padding_idx: int | None = None,
) -> Any:  # fmt: skip
    result = F.embedding_bag(
        indices, weight, offsets, scale_grad_by_freq=scale_grad_by_freq, mode=("sum", "mean", "max")[mode],
        per_sample_weights=per_sample_weights, include_last_offset=include_last_offset,
        padding_idx=None if padding_idx == -1 else padding_idx,
    )  # fmt: skip
    return result, *(_not_computed("embedding_bag", what) for what in ("bags", "sizes of bags", "maxima"))


def _not_computed(name: str, what: str) -> Callable[[], Any]:
    def refuse() -> Any:
        raise UserError(f"{name}: its {what} are used, which are not computed here")

    return refuse


# -- dropout


@ATEN.register("aten.dropout")
def dropout(input: Any, p: float, train: bool) -> Any:
    return F.dropout(input, p, train)


@ATEN.register("aten.native_dropout")
def native_dropout(input: Any, p: float, train: bool | None) -> Any:
    if train is False or not p:
        return input, lambda: op.full(input.shape, True, "bool")
    found = op.nn.dropout(input, rate=p)
    return found[0], lambda: op.astype(found[1], "bool")


@ATEN.register("aten.feature_dropout")
def feature_dropout(input: Any, p: float, train: bool) -> Any:
    """Whole channels of (N, C, …); of two axes it is dropout."""
    rank = len(input.shape)
    functions = {3: F.dropout1d, 4: F.dropout2d, 5: F.dropout3d}
    if rank == 2:
        return F.dropout(input, p, train)
    if rank not in functions:
        raise ArgumentError(f"feature_dropout takes (N, C, …) of up to 5 axes, got {rank}")
    return functions[rank](input, p, train)


@ATEN.register("aten.alpha_dropout")
def alpha_dropout(input: Any, p: float, train: bool) -> Any:
    return F.alpha_dropout(input, p, train)


@ATEN.register("aten.feature_alpha_dropout")
def feature_alpha_dropout(input: Any, p: float, train: bool) -> Any:
    return F.feature_alpha_dropout(input, p, train)


# -- weights


@ATEN.register("aten._weight_norm")
def weight_norm(v: Any, g: Any, dim: int) -> Any:
    return weight_norm_interface(v, g, dim)[0]


@ATEN.register("aten._weight_norm_interface")
def weight_norm_interface(v: Any, g: Any, dim: int) -> Sequence[Any]:
    """g · v / |v|, with the norm over all axes but ``dim`` (-1: all). Salimans & Kingma, Weight Normalization, 2016."""
    axes = [axis for axis in range(len(v.shape)) if dim == -1 or axis != dim % len(v.shape)]
    length = op.norm(v, 2.0, axes, True)
    return v * (g / length), op.grad.no_grad(length)
