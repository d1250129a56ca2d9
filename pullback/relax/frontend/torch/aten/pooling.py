"""Pooling."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.ir.errors import UserError
from pullback.nn import functional as F
from pullback.nn.functional.axes import batched, known_sizes
from pullback.relax import op
from pullback.relax.expr import const
from pullback.relax.frontend.padding import least
from pullback.relax.frontend.torch.aten.layers import each_axis
from pullback.relax.frontend.torch.table import ATEN

_MAX: dict[int, Callable[..., Any]] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVG: dict[int, Callable[..., Any]] = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
_ADAPTIVE_AVG = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
_ADAPTIVE_MAX = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}


def _settings(rank: int, window: Any, stride: Any, *others: Any) -> tuple[Any, ...]:
    """Window, stride (None where PyTorch gives none, which is the window) and others, for each axis."""
    return each_axis(window, rank), each_axis(stride, rank) or None, *(each_axis(o, rank) for o in others)


def _add(rank: int) -> None:
    def max_pool(x: Any, window: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
        return _MAX[rank](x, *_settings(rank, window, stride, padding, dilation), ceil_mode)

    def max_pool_and_places(x: Any, window: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
        settings = _settings(rank, window, stride, padding, dilation)
        found = _MAX[rank](x, *settings, ceil_mode)
        return found, lambda: _places(rank, x, found, *settings)

    def avg_pool(
        x: Any, window: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool, *divisor: Any
    ) -> Any:
        settings = _settings(rank, window, stride, padding)
        return _AVG[rank](x, *settings, ceil_mode, count_include_pad, *divisor)

    def adaptive_avg(x: Any, size: Any) -> Any:
        return _ADAPTIVE_AVG[rank](x, each_axis(size, rank) if rank > 1 else size)

    def adaptive_max(x: Any, size: Any) -> Any:
        return _ADAPTIVE_MAX[rank](x, each_axis(size, rank) if rank > 1 else size), _no_places(rank)

    ATEN.register(f"aten.max_pool{rank}d")(max_pool)
    ATEN.register(f"aten.max_pool{rank}d_with_indices")(max_pool_and_places)
    ATEN.register(f"aten.avg_pool{rank}d")(avg_pool)
    names = [f"aten.adaptive_avg_pool{rank}d"] + ([f"aten._adaptive_avg_pool{rank}d"] if rank > 1 else [])
    ATEN.register(*names)(adaptive_avg)
    ATEN.register(f"aten.adaptive_max_pool{rank}d")(adaptive_max)


for _rank in (1, 2, 3):
    _add(_rank)


def _no_places(rank: int) -> Callable[[], Any]:
    def refuse() -> Any:
        raise UserError(f"adaptive_max_pool{rank}d: the places of its maxima are used, which are not computed here")

    return refuse


def _places(rank: int, x: Any, found: Any, window: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    """Where each maximum lies in its image, as a number (int64): the first of equal ones."""

    def of(data: Any) -> Any:
        sizes = known_sizes(data.shape[2:], f"the places of max_pool{rank}d")
        steps = stride or window
        outs = found.shape[-rank:]
        corners = np.stack(np.meshgrid(*(np.arange(o) for o in outs), indexing="ij"), -1).reshape(-1, rank)
        taps = np.array(list(itertools.product(*map(range, window))))
        at = corners[None] * np.array(steps) - np.array(padding) + taps[:, None] * np.array(dilation)
        inside = np.all((at >= 0) & (at < np.array(sizes)), -1)
        number = np.ravel_multi_index(tuple(np.clip(at[..., a], 0, sizes[a] - 1) for a in range(rank)), sizes)
        flat = op.reshape(data, (*data.shape[:2], int(np.prod(sizes))))
        values = op.take(flat, const(number.reshape(-1), "int64"), 2)
        values = op.reshape(values, (*data.shape[:2], *number.shape))
        values = op.where(const(inside), values, const(least(data.dtype), data.dtype))
        best = op.argmax(values, 2)  # (N, C, outputs)
        table = const(number.T.copy(), "int64")
        row = op.arange(number.shape[1], dtype="int64")
        places = op.index_tensor([table, op.broadcast_to(row, best.shape), best])
        return op.reshape(places, (*data.shape[:2], *outs))

    return batched(of, x, rank)


@ATEN.register("aten.max_unpool2d")
def max_unpool2d(input: Any, indices: Any, output_size: Any) -> Any:
    """The inverse of max pooling: each value at its place, zeros elsewhere."""
    lead, count = input.shape[:-2], output_size[0] * output_size[1]
    flat = (*lead, input.shape[-2] * input.shape[-1])
    zeros = op.zeros((*lead, count), input.dtype)
    found = op.scatter_elements(zeros, op.reshape(indices, flat), op.reshape(input, flat), len(lead))
    return op.reshape(found, (*lead, *output_size))
