"""Attention, and what is added to its logits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, DTypeError, ShapeError
from pullback.relax import op
from pullback.relax.expr import Expr, as_relax, const
from pullback.relax.struct_info import format_shape
from pullback.runtime.dtype import numpy_dtype
from pullback.runtime.interchange import array_of
from pullback.runtime.tensor import Tensor
from pullback.tir.polynomial import same

__all__ = ["alibi_bias", "scaled_dot_product_attention"]


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(scale · query·keyᵀ + mask) · value.

    The axes before the last two are the batch and, by convention, the heads: (N, heads, L, E). Without dropout, and
    that is fastest, one kernel computes all and keeps no weights in memory; a causal mask given as an array counts as
    ``is_causal``. Formula: ``torch.nn.functional.scaled_dot_product_attention``.

    Args:
        query: (…, L, E).
        key: (…, S, E).
        value: (…, S, V).
        attn_mask: broadcasts to (…, L, S): bools, of which True takes part, or floats, which are added to the logits;
            an array, or a graph value.
        dropout_p: the probability of a weight to be dropped in steps of training.
        is_causal: whether a query sees only keys up to its own place.
        scale: of the logits; by default 1/√E.
        enable_gqa: whether heads of keys and values may be fewer than those of queries, which they divide.

    Returns:
        (…, L, V).

    Raises:
        ShapeError, DTypeError: for what does not fit.
    """
    name, rank = "scaled_dot_product_attention", len(query.shape)
    for label, x in (("query", query), ("key", key), ("value", value)):
        if len(x.shape) != rank or rank < 2:
            got = ", ".join(format_shape(x.shape) for x in (query, key, value))
            raise ShapeError(f"{name}: {label} must have the axes (…, length, size) of the others, got {got}")
    if rank >= 4 and not enable_gqa and not same(query.shape[-3], key.shape[-3]):
        raise ShapeError(
            f"{name}: query has {query.shape[-3]} heads, key {key.shape[-3]}",
            hint="enable_gqa=True lets each head of key and value serve several of query",
        )
    lead, rows, keys = query.shape[:-2], query.shape[-2], key.shape[-2]
    mask = None if attn_mask is None else logit_bias(attn_mask, query.dtype, name, "attn_mask", blocks=False)
    if is_causal_mask(mask, rows, keys):
        mask, is_causal = None, True
    if mask is not None and len(mask.shape) > 2 and rank != 4:
        mask = _heads_of_mask(mask, lead)
    q, k, v = (_places_first(x) for x in (query, key, value))
    result = attention(q, k, v, mask, is_causal, dropout_p, scale)
    result = op.permute_dims(result, (0, 2, 1, 3))
    return result if rank == 4 else op.reshape(result, (*lead, rows, value.shape[-1]))


def _places_first(x: Any) -> Any:
    """(…, L, E) as (batch, L, heads, E)."""
    *lead, length, size = x.shape
    if len(lead) != 2:
        heads = math.prod(lead[1:]) if len(lead) > 1 else 1
        x = op.reshape(x, (lead[0] if lead else 1, heads, length, size))
    return op.permute_dims(x, (0, 2, 1, 3))


def _heads_of_mask(mask: Any, lead: tuple[Any, ...]) -> Any:
    """A mask (…, L, S) of tensors whose axes ``lead`` become (batch, heads)."""
    rows, keys = mask.shape[-2:]
    if len(lead) == 1:
        return op.expand_dims(as_relax(mask), 1)
    mask = op.broadcast_to(as_relax(mask), (*lead, rows, keys))
    return op.reshape(mask, (lead[0], math.prod(lead[1:]), rows, keys))


def attention(
    query: Any, key: Any, value: Any, bias: Any, is_causal: bool, dropout_p: float, scale: float | None = None
) -> Any:
    """Attention of (N, L, heads, E), (N, S, heads, E) and (N, S, heads, V): (N, L, heads, V).

    Steps with dropout compute the weights one by one; all else is the op, which keeps none in memory."""
    bias = None if bias is None else as_relax(bias)
    result = op.nn.attention(query, key, value, bias, scale, "TopLeft" if is_causal else None)
    if not dropout_p:
        return result
    weights = op.dropout(attention_weights(query, key, bias, is_causal, scale), p=dropout_p)
    value = _repeated(op.permute_dims(value, (0, 2, 1, 3)), weights.shape[1])
    return op.nn.in_train_phase(op.permute_dims(op.matmul(weights, value), (0, 2, 1, 3)), result)


def attention_weights(query: Any, key: Any, bias: Any, is_causal: bool, scale: float | None = None) -> Any:
    """softmax(scale · query·keyᵀ + bias) of (N, L, heads, E) and (N, S, heads, E): (N, heads, L, S), 0 in rows that see
    nothing."""
    rows, keys, size = query.shape[1], key.shape[1], query.shape[3]
    factor = 1.0 / math.sqrt(size) if scale is None else scale
    key = _repeated(op.permute_dims(key, (0, 2, 3, 1)), query.shape[2])
    logits = op.matmul(op.permute_dims(query, (0, 2, 1, 3)) * factor, key)
    logits = logits if bias is None else logits + bias
    lowest = const(-math.inf, logits.dtype)
    if is_causal:
        seen = op.less_equal(op.arange(keys), op.expand_dims(op.arange(rows), 1))
        logits = op.where(seen, logits, lowest)
    weights = op.nn.softmax(logits, -1)
    return weights if bias is None else op.where(op.not_equal(logits, lowest), weights, const(0.0, weights.dtype))


def _repeated(x: Any, heads: Any) -> Any:
    """(N, M, …) with each of the M heads as often as ``heads`` asks."""
    return x if same(x.shape[1], heads) else op.repeat(x, heads // x.shape[1], 1)


def logit_bias(mask: Any, dtype: str, name: str, label: str, *, blocks: bool) -> Any:
    """A mask as what is added to logits of ``dtype``, an array or a graph value: bools, of which True is kept out
    (``blocks``) or in, or floats as they are. Raises DTypeError for integers."""
    if not isinstance(mask, Expr):
        mask = np.asarray(mask) if isinstance(mask, Tensor) else array_of(mask, None)
    kind = str(mask.dtype)
    if kind != "bool" and "float" not in kind:
        raise DTypeError(f"{name}: {label} must be bools or floats, got {kind}", hint="such as mask > 0")
    if isinstance(mask, Expr):
        if kind != "bool":
            return mask if kind == dtype else op.astype(mask, dtype)
        kept, blocked = const(0.0, dtype), const(-math.inf, dtype)
        return op.where(mask, *((blocked, kept) if blocks else (kept, blocked)))
    if kind == "bool":
        mask = np.where(mask if blocks else ~mask, -np.inf, 0.0)
    return mask.astype(numpy_dtype(dtype))


def is_causal_mask(bias: Any, rows: Any, keys: Any) -> bool:
    """Whether an array is 0 up to the diagonal and -inf above."""
    if not isinstance(bias, np.ndarray) or bias.shape != (rows, keys):
        return False
    return bool(np.array_equal(bias, np.triu(np.full(bias.shape, -np.inf), 1).astype(bias.dtype)))


def alibi_bias(num_heads: int, length: int, dtype: str = "float32") -> np.ndarray:
    """The bias -m·|i - j| of attention with linear biases, an array (num_heads, length, length) for ``attn_mask``.

    The slope m of head h = 1, 2, … is 2^(-8h / num_heads) where the number of heads is a power of two; else the heads
    beyond the next lower one take every second slope of twice as many. Press et al., Train Short, Test Long:
    Attention with Linear Biases Enables Input Length Extrapolation, 2022.

    >>> F.scaled_dot_product_attention(q, k, v, attn_mask=F.alibi_bias(8, 128), is_causal=True)

    Args:
        num_heads: of the attention.
        length: of the sequence.
        dtype: to which the input is cast first.

    Returns:
        a float32 array.
    """
    if not all(isinstance(n, int) and n > 0 for n in (num_heads, length)):
        raise ArgumentError(f"alibi_bias takes two numbers of 1 or more, got {num_heads!r} and {length!r}")
    power = 2 ** int(math.log2(num_heads))
    slopes = [2.0 ** (-8.0 * h / power) for h in range(1, power + 1)]
    slopes += [2.0 ** (-4.0 * h / power) for h in range(1, 2 * (num_heads - power), 2)]
    place = np.arange(length)
    distance = np.abs(place[:, None] - place)
    return (-np.array(slopes)[:, None, None] * distance).astype(numpy_dtype(dtype))
