"""Poolings that follow from others: Lp pooling, and means and maxima of whole images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.ir.errors import UserError
from pullback.relax.op.family import composite, expect_dtype, in_wide, narrowed, widened
from pullback.relax.op.namespace import ops
from pullback.relax.op.nn.pooling import pool_infer, pool_layouts, pool_of, signature, standard_padded
from pullback.relax.op.nn.window import SPATIAL, data_layout, numbers, standard_shape, under
from pullback.relax.op.sample import Floats, sample
from pullback.relax.struct_info import TensorStructInfo, as_int

# -- Lp pooling


def _power(x: Any, p: float) -> Any:
    """xᵖ: a square or square root where it is one."""
    if p == 1:
        return x
    return ops.square(x) if p == 2 else ops.sqrt(x) if p == 0.5 else ops.power(x, p)


def _define_lp(rank: int) -> None:
    op = f"nn.lp_pool{rank}d"

    def window(attrs: dict[str, Any]) -> dict[str, Any]:
        """The attributes of the average pooling whose means are those of powers."""
        return {n: v for n, v in attrs.items() if n != "norm_type"} | {"count_include_pad": True}

    def expect(data: TensorStructInfo, **attrs: Any) -> None:
        if not 0 < attrs["norm_type"] < math.inf:
            raise UserError(f"{op}: norm_type must be positive and finite, got {attrs['norm_type']!r}")
        pool_infer(op, rank, data, window(attrs), "float")

    def decompose(data: Any, **attrs: Any) -> Any:
        p, taps = attrs["norm_type"], math.prod(numbers(op, "pool_size", attrs["pool_size"], rank))
        mean = getattr(ops.nn, f"avg_pool{rank}d")(_power(widened(data), p), **window(attrs))
        return narrowed(_power(mean * float(taps), 1 / p), data.dtype)

    def array(data: np.ndarray, **attrs: Any) -> np.ndarray:
        x, _ = pool_layouts(op, rank, attrs)
        pool = pool_of(op, rank, x.to_standard(data.shape)[2:], window(attrs))
        p, powers = attrs["norm_type"], standard_padded(data, pool, 0) ** attrs["norm_type"]
        counts = np.ones([as_int(e) + a.before for e, a in zip(pool.ends, pool.axes, strict=True)])
        missing = [(0, as_int(a.padded) - n) for a, n in zip(pool.axes, counts.shape, strict=True)]
        counts = np.pad(counts, missing)
        taps = list(np.ndindex(*pool.taps))
        total = sum(powers[under(t, pool.axes)] for t in taps)
        found = sum(counts[under(t, pool.axes)] for t in taps)
        return pool.y.own_array((total * (len(taps) / found)) ** (1 / p)).astype(data.dtype)

    text = signature("data", rank, "norm_type=2.0, ").replace(", count_include_pad=False", "")
    shapes = {1: (2, 3, 9), 2: (2, 2, 6, 5), 3: (1, 2, 4, 3, 4)}
    data = Floats(shapes[rank], 0.2, 3.0)
    composite(
        op,
        text,
        expect=expect,
        decompose=decompose,
        numpy=in_wide(array),
        family="pooling",
        doc="(Σ xᵖ)^(1/p) of each window, p = norm_type; padding is 0. A window of ceil_mode that reaches beyond the\n"
        "padded data counts its elements more, as if it were full: so PyTorch's lp_pool. There is no |x|: for an odd\n"
        "p a negative sum has no root (NaN).",
        samples=[
            sample(data, pool_size=2, strides=2),
            sample(data, pool_size=2, norm_type=3.0, strides=1),
            sample(data, pool_size=2, norm_type=1.0, strides=2, padding=1),
            sample(data, pool_size=2, strides=2, ceil_mode=True, layout=f"N{SPATIAL[rank]}C"),
            sample(data, pool_size=2, norm_type=0.5, strides=1),
        ],
    )


# -- global pooling


def _define_global(rank: int, name: str, numpy: Any, doc: str) -> None:
    op = f"nn.global_{name}_pool{rank}d"
    reduction = {"avg": "mean", "max": "max"}[name]

    def axes(layout: str) -> list[int]:
        letters = data_layout(op, "layout", layout, rank).letters
        return [letters.index(c) for c in SPATIAL[rank]]

    def expect(data: TensorStructInfo, *, layout: str) -> None:
        standard_shape(op, "data", data, data_layout(op, "layout", layout, rank))
        expect_dtype(op, data, "float" if name == "avg" else "number")

    spatial = (4, 3, 5)[:rank]
    composite(
        op,
        f"data | layout='NC{SPATIAL[rank]}'",
        expect=expect,
        decompose=lambda data, *, layout: getattr(ops, reduction)(data, axes(layout), True),
        numpy=in_wide(lambda data, *, layout: numpy(data, tuple(axes(layout)), keepdims=True)),
        precision="same",
        family="pooling",
        doc=f"The {doc} of all elements of each channel's image; the spatial axes have size 1 then.",
        samples=[
            sample((2, 3, *spatial)),
            sample((1, *spatial, 2), layout=f"N{SPATIAL[rank]}C"),
            sample((0, 2, *spatial)),
            sample((2, 1, *(1,) * rank)),
        ],
    )


for _rank in SPATIAL:
    _define_lp(_rank)
    _define_global(_rank, "avg", np.mean, "mean")
    _define_global(_rank, "max", np.max, "maximum")
