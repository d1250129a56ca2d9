"""Attention as one op, which keeps no scores in memory. What the op has not, the standard's definition computes."""

from __future__ import annotations

import math
from typing import Any

from pullback.relax import op
from pullback.relax.expr import const
from pullback.relax.frontend.onnx.known import is_given
from pullback.relax.frontend.onnx.ops.shapes import rank_of, shape_of
from pullback.relax.frontend.onnx.table import ONNX
from pullback.relax.frontend.onnx.types import CODES


@ONNX.register("Attention")
def attention(
    query: Any, key: Any, value: Any, mask: Any = None, past_key: Any = None, past_value: Any = None,
    lengths: Any = None, *, is_causal: int = 0, kv_num_heads: int | None = None, q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0, scale: float | None = None, softcap: float = 0.0,
    softmax_precision: int | None = None, node: Any, **others: Any,
) -> Any:  # fmt: skip
    """(B, heads, S, H), or (B, S, heads · H) with the numbers of heads. Without a past, a cap or scores as a result."""
    dtype = query.struct_info.dtype
    is_plain = not softcap and not others and not node.wants(3) and past_key is None and lengths is None
    is_wide = softmax_precision is None or softmax_precision in (CODES[dtype], CODES["float32"])
    if not is_plain or not is_wide or (is_given(mask) and mask.struct_info.dtype not in ("bool", dtype)):
        return tuple(node.replay.by_schema(node))
    if rank_of(query) == 3:
        heads = [_heads(x, count) for x, count in ((query, q_num_heads), (key, kv_num_heads), (value, kv_num_heads))]
    else:
        heads = [op.permute_dims(x, (0, 2, 1, 3)) for x in (query, key, value)]
    bias = None
    if mask is not None:
        bias = _bias(mask, dtype)
        if not _reaches(bias, heads[1]):
            return tuple(node.replay.by_schema(node))
    found = op.nn.attention(*heads, bias, scale=scale, causal_mask="TopLeft" if is_causal else None)
    if rank_of(query) == 3:
        batch, length, count, width = shape_of(found)
        y = op.reshape(found, (batch, length, count * width))
    else:
        y = op.permute_dims(found, (0, 2, 1, 3))
    present = (op.permute_dims(x, (0, 2, 1, 3)) for x in heads[1:])
    return (y, *present, None)[: node.results]


def _heads(x: Any, count: Any) -> Any:
    """(B, S, heads · H) as (B, S, heads, H)."""
    batch, length, width = shape_of(x)
    return op.reshape(x, (batch, length, count, width // count))


def _bias(mask: Any, dtype: str) -> Any:
    """What is added to scores, of rank 4."""
    if mask.struct_info.dtype == "bool":
        mask = op.where(mask, const(0.0, dtype), const(-math.inf, dtype))
    sizes = shape_of(mask)
    return op.reshape(mask, (*(1,) * (4 - len(sizes)), *sizes)) if len(sizes) < 4 else mask


def _reaches(bias: Any, key: Any) -> bool:
    """Whether a mask is as long as the keys: shorter ones are padded by definition."""
    last, length = shape_of(bias)[-1], shape_of(key)[1]
    return last is length or last == length or (isinstance(last, int) and last == 1)
