"""Orders of long and short lines, of all types, against NumPy's: stable, with NaN behind all numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import pullback
from pullback.ir.op import Op
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Var
from pullback.relax.interpreter import value_info
from pullback.relax.op.namespace import ops
from pullback.runtime import get_num_threads, set_num_threads
from pullback.runtime.dtype import numpy_dtype
from pullback.tir.expr import DTYPES, FLOATS

rng = np.random.default_rng(13)
LENGTHS = (1, 2, 31, 95, 96, 97, 1000)
NUMBERS = [t for t in DTYPES if t != "bool"]


def draw(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers over the whole range of the type, small ones among which many are equal, and what is no number."""
    if dtype not in FLOATS:
        limits = np.iinfo(dtype)
        wide = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        return np.where(rng.random(shape) < 0.5, wide, rng.integers(0, 9, shape).astype(dtype))
    kind = numpy_dtype(dtype)
    info = ml_dtypes.finfo(kind)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, float(info.max), float(info.tiny)]).astype(kind)
    values = (rng.standard_normal(shape) * 10.0 ** rng.integers(-4, 4, shape)).astype(kind)
    return np.where(rng.random(shape) < 0.8, values, rng.choice(special, shape))


def expected(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    return Op.get("argsort").numpy(x, axis=axis, descending=descending, dtype="int64")


@pytest.mark.parametrize("dtype", NUMBERS)
def test_argsort(dtype: str) -> None:
    arrays = [draw(dtype, (3, n)) for n in LENGTHS] + [draw(dtype, (n, 3)) for n in LENGTHS]
    params = [Var(f"x{k}", value_info(a)) for k, a in enumerate(arrays)]
    builder = BlockBuilder()
    cases = [(k, a.shape.index(3) - 1, d) for k, a in enumerate(arrays) for d in (False, True)]
    with builder.function("main", params):
        builder.emit_func_output(tuple(builder.emit(ops.argsort(params[k], axis, d, "int64")) for k, axis, d in cases))
    found = pullback.compile(builder.get()).function("main")(*arrays)
    for order, (k, axis, descending) in zip(found, cases, strict=True):
        np.testing.assert_array_equal(order.numpy(), expected(arrays[k], axis, descending))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8", "uint64"])
def test_first_of_many(dtype: str) -> None:
    """By a list, where they are few, and otherwise."""
    array = draw(dtype, (4, 400))
    x = Var("x", value_info(array))
    cases = [(k, largest) for k in (1, 2, 19, 20, 21, 399, 400) for largest in (False, True)]
    builder = BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(tuple(builder.emit(ops.argsort(x, 1, largest, "int32", k)) for k, largest in cases))
    for first, (k, largest) in zip(pullback.compile(builder.get()).function("main")(array), cases, strict=True):
        np.testing.assert_array_equal(first.numpy(), expected(array, 1, largest)[:, :k])


def test_many_lines_with_any_threads() -> None:
    array = draw("float32", (300, 200))
    x = Var("x", value_info(array))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(
            (builder.emit(ops.argsort(x, 0, False, "int64")), builder.emit(ops.argsort(x, 1, True, "int32", 5)))
        )
    function, before = pullback.compile(builder.get()).function("main"), get_num_threads()
    try:
        for threads in (1, 2, 3):
            set_num_threads(threads)
            order, first = function(array)
            np.testing.assert_array_equal(order.numpy(), expected(array, 0, False))
            np.testing.assert_array_equal(first.numpy(), expected(array, 1, True)[:, :5])
    finally:
        set_num_threads(before)
