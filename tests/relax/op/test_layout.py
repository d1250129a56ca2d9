"""layout_transform: what a function says, in scripts too, and what cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback
from pullback import tir
from pullback.ir.errors import ShapeError, UserError
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Var
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import TensorStructInfo
from tests.helpers import round_trip

IndexMap = Callable[..., Any]
MAPS: dict[str, tuple[tuple[int, ...], IndexMap]] = {
    "identity": ((3, 4), lambda i, j: (i, j)),
    "transpose": ((3, 4), lambda i, j: (j, i)),
    "blocks of channels": ((2, 12, 3, 5), lambda n, c, h, w: (n, c // 4, h, w, c % 4)),
    "tiles": ((8, 6), lambda i, j: (i // 4, j // 3, i % 4, j % 3)),
    "three digits": ((24,), lambda i: (i % 4, i // 12, i // 4 % 3)),
    "three digits the other way": ((24,), lambda i: (i % 4, i // 4 // 3, i % 12 // 4)),
    "flat": ((3, 4, 5), lambda i, j, k: i * 20 + j * 5 + k),
    "flat, other order": ((3, 4), lambda i, j: [i + j * 3]),
    "joined after a split": ((4, 6), lambda i, j: (j // 2, (j % 2) * 4 + i)),
    "one more axis": ((5,), lambda i: (0, i)),
    "one axis less": ((1, 5), lambda i, j: (j,)),
    "scalar": ((), lambda: ()),
}


@pytest.mark.parametrize("name", MAPS)
def test_each_element_goes_where_the_function_says(name: str) -> None:
    shape, index_map = MAPS[name]
    x = Var("x", TensorStructInfo(shape, "float64"))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(ops.layout_transform(x, index_map)))
    module = builder.get()
    round_trip(module)
    value = np.arange(np.prod(shape, dtype=int), dtype="float64").reshape(shape)
    for target in ("debug", "llvm"):
        result = pullback.compile(module, target).function("main")(value).numpy()
        assert result.size == value.size
        for old in np.ndindex(shape):
            new = index_map(*old)
            assert result[tuple(new) if isinstance(new, (tuple, list)) else new] == value[old]


def test_padding() -> None:
    x = Var("x", TensorStructInfo((2, 7), "int32"))
    call = ops.layout_transform(x, lambda i, j: (j // 4, i, j % 4), -1)
    builder = BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(call))
    value = np.arange(14, dtype="int32").reshape(2, 7)
    expected = np.pad(value, ((0, 0), (0, 1)), constant_values=-1).reshape(2, 2, 4).transpose(1, 0, 2)
    np.testing.assert_array_equal(pullback.compile(builder.get()).function("main")(value).numpy(), expected)


def test_a_symbolic_size() -> None:
    n = tir.Var("n")
    x = Var("x", TensorStructInfo((n, 6), "float32"))
    call = ops.layout_transform(x, lambda i, j: (i // 4, j // 2, i % 4, j % 2))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(call))
    function = pullback.compile(builder.get()).function("main")
    for size in (8, 9):
        assert function(np.ones((size, 6), np.float32)).numpy().shape == (-(-size // 4), 3, 4, 2)


X = Var("x", TensorStructInfo((4, 6), "float32"))
ERRORS: dict[str, tuple[Any, type[UserError], str]] = {
    "arity": (lambda i: i, ShapeError, "index_map must take the 2 indices of x"),
    "an axis is missing": (lambda i, j: i, ShapeError, "the strides .. of axis 1 do not make each index once"),
    "twice": (lambda i, j: (i, j, j), ShapeError, "strides .1, 1. of axis 1 do not make each index once"),
    "a digit is missing": (lambda i, j: (i, j // 2), ShapeError, "strides .2. of axis 1 do not make each index once"),
    "overlapping digits": (lambda i, j: (i, j // 2, j % 3), ShapeError, "index 2 of index_map does not make each"),
    "uneven strides": (lambda i, j: (i, j // 3, j // 2 % 2, j % 2), ShapeError, "of axis 1 do not make each index"),
    "a gap": (lambda i, j: i * 7 + j, ShapeError, "index 0 of index_map does not make each index once"),
    "too near": (lambda i, j: i * 5 + j, ShapeError, "index 0 of index_map does not make each index once"),
    "a part of a sum": (lambda i, j: ((i * 6 + j) // 8, (i * 6 + j) % 8), ShapeError, "index 0 .* cannot be read"),
    "shifted": (lambda i, j: (i + 1, j), ShapeError, r"index 0 of index_map cannot be read: i0 \+ 1"),
    "a product": (lambda i, j: (i * j, j), ShapeError, "index 0 of index_map cannot be read"),
    "no pairs": (((0, 1),), UserError, r"must hold pairs \(axis, stride\) for each axis, got \(\(0, 1\),\)"),
    "axis": ((((2, 1),), ((0, 1),)), ShapeError, "axis 2 is outside a tensor of rank 2"),
    "negative axis": ((((-1, 1),), ((0, 1),)), ShapeError, "an axis cannot be negative"),
    "stride": ((((1, 0),), ((0, 1),)), ShapeError, "a stride must be positive"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    index_map, kind, message = ERRORS[name]
    with pytest.raises(kind, match="layout_transform: .*" + message):
        ops.layout_transform(X, index_map)
