"""Sorting in machine code: every dtype, short and long lines, equal and special values, all places and the first."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.ir.op import Op
from pullback.relax.op.family import DTYPE_CLASSES
from pullback.runtime.dtype import numpy_dtype
from tests.relax.op.backends import BACKENDS
from tests.samples import Case

LENGTHS = (5, 63, 64, 300)


def drawn(length: int, dtype: str) -> np.ndarray:
    """Lines of numbers of which many are equal; of floats also both zeros, infinities and NaN of both signs."""
    rng = np.random.default_rng(length)
    low = 0 if dtype.startswith("u") else -100
    values = rng.integers(low, 100, (3, length)).astype(np.float64)
    if "float" in dtype:
        special = rng.integers(0, 12, values.shape)
        for k, value in enumerate((0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan)):
            values[special == k] = value
    elif dtype in ("int64", "uint64", "int32", "uint32"):  # numbers that differ in their high bits
        return (values.astype(numpy_dtype(dtype)) << (np.dtype(dtype).itemsize * 8 - 9)) // 3
    return values.astype(numpy_dtype(dtype))


def case(length: int, dtype: str, axis: int, descending: bool, first: int | None) -> Case:
    data = drawn(length, dtype)
    attrs = {"axis": axis, "descending": descending, "dtype": "int64", "first": first}
    data = np.ascontiguousarray(data.T) if axis == 0 else data
    return Case(Op.get("argsort"), f"{length}-{dtype}-{axis}-{descending}-{first}", (data,), attrs)


@pytest.mark.parametrize("backend", ["native", "legalized"])
@pytest.mark.parametrize("dtype", DTYPE_CLASSES["number"])
def test_places(dtype: str, backend: str) -> None:
    chosen = [
        case(length, dtype, axis, descending, first)
        for length in (LENGTHS if backend == "native" else (5, 66))
        for axis, descending, first in ((1, False, None), (0, True, None), (1, True, 4), (1, False, min(40, length)))
    ]
    for c, found in zip(chosen, BACKENDS[backend](chosen), strict=True):
        np.testing.assert_array_equal(found, c.op.numpy(*c.args, **c.attrs), c.label)  # type: ignore[misc]


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2, 7, 8, 9, 100])
def test_search(length: int, right: bool) -> None:
    """NaN is found behind all numbers, before or behind the NaN of the sequence."""
    rng = np.random.default_rng(length)
    edges = np.sort(rng.integers(-9, 9, length).astype(np.float32))
    chosen = []
    for nans in range(min(3, length + 1)):
        sequence = np.concatenate([edges[nans:], np.full(nans, np.nan, np.float32)])
        values = np.concatenate([np.arange(-10, 11, 0.5), [np.nan, np.inf, -np.inf, -0.0]]).astype(np.float32)
        chosen.append(Case(Op.get("searchsorted"), f"{nans}", (sequence, values), {"right": right, "dtype": "int32"}))
    for c, found in zip(chosen, BACKENDS["native"](chosen), strict=True):
        np.testing.assert_array_equal(found, np.searchsorted(*c.args, "right" if right else "left"), c.label)
