"""Attention with projections of its inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, ShapeError
from pullback.nn.functional.attention import attention, attention_weights, is_causal_mask, logit_bias
from pullback.nn.functional.linear import linear
from pullback.nn.init import XavierNormal, XavierUniform
from pullback.nn.linear import Linear
from pullback.nn.module import Module
from pullback.nn.parameter import Parameter
from pullback.relax import op
from pullback.relax.expr import as_relax
from pullback.relax.struct_info import format_shape, same_shape

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Heads of attention between linear projections: softmax(q·kᵀ / √size) · v for each head, then ``out_proj``.

    Arguments, parameters and their names are those of ``torch.nn.MultiheadAttention``: ``in_proj_weight`` (3·embed_dim,
    embed_dim), or ``q_proj_weight``, ``k_proj_weight`` and ``v_proj_weight`` where ``kdim`` or ``vdim`` differ from
    embed_dim, ``in_proj_bias``, ``out_proj.weight``, ``out_proj.bias``, and with ``add_bias_kv`` the key ``bias_k`` and
    value ``bias_v`` that every row sees.

    Inputs are (L, N, E), with ``batch_first`` (N, L, E), or (L, E). Vaswani et al., Attention Is All You Need, 2017.

    Args:
        embed_dim: size of the last axis of queries and results, E.
        num_heads: heads; they divide embed_dim.
        dropout: the probability of a weight of attention to be dropped in steps.
        bias: whether there is a bias.
        add_bias_kv: whether there are a trained key and value that every row sees.
        add_zero_attn: whether every row sees a key and value of zeros.
        kdim: size of the last axis of keys, by default embed_dim.
        vdim: size of the last axis of values, by default embed_dim.
        batch_first: whether inputs and results are (N, L, …) rather than (L, N, …).
        dtype: of the parameters, float32 by default.

    Raises:
        ArgumentError: where the heads do not divide embed_dim.

    Examples:
        >>> attention = nn.MultiheadAttention(16, 4, batch_first=True)
        >>> sequences = np.zeros((2, 5, 16), "float32")
        >>> output, _ = attention(sequences, sequences, sequences)
        >>> output.shape
        (2, 5, 16)
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        *,
        dtype: str | None = None,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            raise ArgumentError(
                f"embed_dim must be a multiple of num_heads, got {embed_dim} and {num_heads}",
                hint="each head takes embed_dim / num_heads elements, such as nn.MultiheadAttention(64, 4)",
            )
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
        self.in_proj_weight = self.q_proj_weight = self.k_proj_weight = self.v_proj_weight = None
        if self.kdim == self.vdim == embed_dim:
            self.in_proj_weight = Parameter((3 * embed_dim, embed_dim), init=XavierUniform(), dtype=dtype)
        else:
            self.q_proj_weight = Parameter((embed_dim, embed_dim), init=XavierUniform(), dtype=dtype)
            self.k_proj_weight = Parameter((embed_dim, self.kdim), init=XavierUniform(), dtype=dtype)
            self.v_proj_weight = Parameter((embed_dim, self.vdim), init=XavierUniform(), dtype=dtype)
        self.in_proj_bias = Parameter((3 * embed_dim,), dtype=dtype) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype=dtype)
        if bias:
            self.out_proj.bias = Parameter((embed_dim,), dtype=dtype)  # zeros
        self.bias_k = self.bias_v = None
        if add_bias_kv:
            self.bias_k = Parameter((1, 1, embed_dim), init=XavierNormal(), dtype=dtype)
            self.bias_v = Parameter((1, 1, embed_dim), init=XavierNormal(), dtype=dtype)

    def forward(
        self,
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Any, Any]:
        """(output, weights): the output in the layout of ``query``, and with ``need_weights`` the weights, (N, L, S),
        or (N, heads, L, S) with ``average_attn_weights=False``, else None.

        Masks are bools, of which True is not seen, or floats, which are added to the logits; arrays, or graph values:
        ``key_padding_mask`` (N, S), ``attn_mask`` (L, S) or (N·heads, L, S). ``is_causal``: row i sees the keys up to
        i, with or without an ``attn_mask``, which says the same in PyTorch. A row that sees nothing gives 0.

        Weights that are not used cost nothing: the output is computed by one kernel that keeps none in memory, but in
        steps with dropout. The weights are those before dropout.
        """
        batched, same_inputs = self._layout(query, key, value), (query is key, key is value)
        query, key, value = (self._batch_first(x, batched) for x in (query, key, value))
        rows = query.shape[1]
        q, k, v = self._projections(query, key, value, *same_inputs)
        bias, is_causal = self._bias(query, key, key_padding_mask, attn_mask, is_causal, batched)
        k, v = self._extended(k, self.bias_k), self._extended(v, self.bias_v)
        size = (self.num_heads, self.head_dim)
        q, k, v = (op.reshape(x, (*x.shape[:2], *size)) for x in (q, k, v))
        result = attention(q, k, v, bias, is_causal, self.dropout)
        output = self.out_proj(op.reshape(result, (query.shape[0], rows, self.embed_dim)))
        if not batched:
            output = op.squeeze(output, 0)
        elif not self.batch_first:
            output = op.permute_dims(output, (1, 0, 2))
        if not need_weights:
            return output, None
        weights = attention_weights(q, k, bias, is_causal)
        weights = op.mean(weights, 1) if average_attn_weights else weights
        return output, weights if batched else op.squeeze(weights, 0)

    def _layout(self, query: Any, key: Any, value: Any) -> bool:
        """Whether there is a batch; a ShapeError for inputs that do not fit."""
        sizes = (self.embed_dim, self.kdim, self.vdim)
        for label, x, size in zip(("query", "key", "value"), (query, key, value), sizes, strict=True):
            if len(x.shape) not in (2, 3) or len(x.shape) != len(query.shape) or x.shape[-1] != size:
                axes = "N, length" if self.batch_first else "length, N"
                raise ShapeError(
                    f"{label} must have the shape ({axes}, {size}) or (length, {size}), got {format_shape(x.shape)}"
                )
        return len(query.shape) == 3

    def _batch_first(self, x: Any, batched: bool) -> Any:
        if not batched:
            return op.expand_dims(x, 0)
        return x if self.batch_first else op.permute_dims(x, (1, 0, 2))

    def _projections(self, query: Any, key: Any, value: Any, query_is_key: bool, key_is_value: bool) -> tuple[Any, ...]:
        """Query, key and value projected; inputs that are the same are so by one product."""
        weight: Any = self.in_proj_weight  # variables of the program, as all parameters in a forward
        bias: Any = self.in_proj_bias
        size = self.embed_dim
        cuts = (slice(0, size), slice(size, 2 * size), slice(2 * size, 3 * size))
        if weight is None:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            parts = zip((query, key, value), weights, cuts, strict=True)
            return tuple(linear(x, w, None if bias is None else bias[cut]) for x, w, cut in parts)
        if query_is_key and key_is_value:
            packed = op.split(linear(query, weight, bias), 3, -1)
            return packed[0], packed[1], packed[2]

        def projected(x: Any, cut: slice) -> Any:
            return linear(x, weight[cut], None if bias is None else bias[cut])

        if key_is_value:
            packed = op.split(projected(key, slice(size, 3 * size)), 2, -1)
            return projected(query, cuts[0]), packed[0], packed[1]
        return tuple(projected(x, cut) for x, cut in zip((query, key, value), cuts, strict=True))

    def _extended(self, x: Any, learned: Any) -> Any:
        """(N, S, E) with the learned key or value and the one of zeros at the end."""
        shape, parts = (x.shape[0], 1, self.embed_dim), [x]
        if learned is not None:
            parts.append(op.broadcast_to(learned, shape))
        if self.add_zero_attn:
            parts.append(op.zeros(shape, x.dtype))
        return x if len(parts) == 1 else op.concat(parts, 1)

    def _bias(
        self, query: Any, key: Any, key_padding_mask: Any, attn_mask: Any, is_causal: bool, batched: bool
    ) -> tuple[Any, bool]:
        """What is added to the logits, (N or 1, heads or 1, L or 1, S), or None; whether they are causal besides."""
        rows, keys, extra = query.shape[1], key.shape[1], (self.bias_k is not None) + self.add_zero_attn
        mask = padding = None
        if attn_mask is not None:
            mask = logit_bias(attn_mask, query.dtype, "attention", "attn_mask", blocks=True)
            whole = (query.shape[0] * self.num_heads, rows, keys)
            if not (same_shape(mask.shape, whole[1:]) or same_shape(mask.shape, whole)):
                wanted = f"{format_shape(whole[1:])} or {format_shape(whole)}, (N·heads, L, S)"
                raise ShapeError(f"attn_mask must have the shape {wanted}, got {format_shape(mask.shape)}")
            if len(mask.shape) == 3:
                mask = op.reshape(as_relax(mask), (query.shape[0], self.num_heads, rows, keys))
        if is_causal_mask(mask, rows, keys):
            mask, is_causal = None, True
        if is_causal and extra:  # every row sees what comes after the keys
            if not (isinstance(rows, int) and isinstance(keys, int)):
                raise ShapeError("is_causal with add_bias_kv or add_zero_attn needs lengths that are numbers")
            causal = np.triu(np.full((rows, keys), -np.inf), 1).astype(query.dtype)
            mask, is_causal = causal if mask is None else mask + causal, False
        if key_padding_mask is not None:
            padding = logit_bias(key_padding_mask, query.dtype, "attention", "key_padding_mask", blocks=True)
            wanted_shape = (query.shape[0], keys) if batched else (keys,)
            if not same_shape(padding.shape, wanted_shape):
                wanted = format_shape(wanted_shape)
                raise ShapeError(f"key_padding_mask must have the shape {wanted}, got {format_shape(padding.shape)}")
            padding = op.reshape(as_relax(padding), (query.shape[0], 1, 1, keys))
        bias = mask if padding is None else padding if mask is None else padding + mask
        if bias is not None and extra:
            zeros = op.zeros((*bias.shape[:-1], extra), query.dtype)
            bias = op.concat([as_relax(bias), zeros], -1)
        return bias, is_causal

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, dropout={self.dropout}"
