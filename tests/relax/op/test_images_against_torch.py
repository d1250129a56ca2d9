"""Convolutions and poolings beside PyTorch's in float64: values and adjoints, interpreted and native."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import pullback
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Var
from pullback.relax.interpreter import evaluate, value_info
from pullback.relax.op.namespace import ops
from tests.relax.op.beside_torch import compare

functional = torch.nn.functional
CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 8, 7), (4, 3, 3, 3), {}),
    "1x1": ((2, 3, 6, 6), (5, 3, 1, 1), {}),
    "1x1 strided": ((2, 3, 7, 6), (5, 3, 1, 1), {"stride": 2}),
    "padded": ((2, 3, 6, 5), (4, 3, 3, 3), {"padding": 1}),
    "strided": ((2, 3, 9, 8), (4, 3, 3, 3), {"stride": 2, "padding": 1}),
    "dilated": ((2, 3, 9, 8), (4, 3, 3, 2), {"dilation": 2, "padding": (2, 1)}),
    "strided and dilated": ((1, 2, 11, 10), (3, 2, 3, 3), {"stride": (3, 2), "dilation": (2, 1), "padding": (1, 2)}),
    "grouped": ((2, 6, 6, 6), (4, 3, 3, 3), {"groups": 2, "padding": 1}),
    "depthwise": ((2, 4, 7, 7), (4, 1, 3, 3), {"groups": 4, "padding": 1}),
    "depthwise strided": ((2, 4, 7, 7), (4, 1, 3, 3), {"groups": 4, "padding": 1, "stride": 2}),
    "depth multiplier": ((2, 3, 5, 5), (6, 1, 3, 3), {"groups": 3}),
    "grouped 1x1": ((2, 4, 3, 3), (6, 2, 1, 1), {"groups": 2}),
    "one pixel": ((3, 4, 1, 1), (2, 4, 1, 1), {}),
    "whole image": ((3, 2, 5, 5), (4, 2, 5, 5), {}),
    "more padding than kernel": ((1, 2, 3, 3), (2, 2, 2, 2), {"padding": 3}),
    "stride over the kernel": ((1, 2, 11, 11), (2, 2, 2, 2), {"stride": 4}),
    "line": ((2, 3, 9), (4, 3, 3), {"stride": 2, "padding": 1}),
    "line dilated": ((2, 4, 9), (4, 2, 3), {"dilation": 2, "groups": 2}),
    "volume": ((1, 2, 5, 4, 6), (3, 2, 3, 2, 3), {"stride": (2, 1, 2), "padding": (1, 0, 1)}),
}
TRANSPOSES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 4, 5), (3, 4, 3, 3), {}),
    "strided": ((2, 3, 4, 5), (3, 2, 3, 3), {"stride": 2, "padding": 1, "output_padding": (1, 0)}),
    "padded": ((1, 2, 5, 5), (2, 3, 2, 2), {"padding": 2}),
    "1x1": ((2, 3, 4, 4), (3, 2, 1, 1), {}),
    "1x1 strided": ((2, 3, 4, 4), (3, 2, 1, 1), {"stride": 3, "output_padding": 2}),
    "dilated": ((1, 2, 4, 4), (2, 3, 3, 2), {"dilation": (2, 3), "padding": 1}),
    "grouped": ((1, 4, 4, 3), (4, 3, 2, 3), {"groups": 2, "stride": (2, 1)}),
    "depthwise": ((2, 3, 4, 4), (3, 1, 3, 3), {"groups": 3, "stride": 2, "padding": 1}),
    "one pixel": ((2, 3, 1, 1), (3, 2, 4, 4), {"stride": 2, "padding": 1}),
    "line": ((2, 3, 5), (3, 2, 4), {"stride": 3, "padding": 1}),
    "volume": ((1, 2, 2, 3, 2), (2, 2, 2, 2, 3), {"stride": 2, "output_padding": 1}),
}
NAMES = {"stride": "strides"}
WINDOWS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "halves": ((2, 3, 8, 6), {"kernel_size": 2}),
    "odd": ((2, 3, 7, 5), {"kernel_size": 2}),
    "odd, up": ((2, 3, 7, 5), {"kernel_size": 2, "ceil_mode": True}),
    "overlapping": ((2, 3, 9, 8), {"kernel_size": 3, "stride": 2, "padding": 1}),
    "overlapping, up": ((1, 2, 8, 8), {"kernel_size": 3, "stride": 2, "ceil_mode": True}),
    "up, where nothing starts": ((1, 2, 4, 5), {"kernel_size": 2, "stride": 3, "padding": 1, "ceil_mode": True}),
    "up and padded": ((1, 2, 6, 7), {"kernel_size": (3, 2), "stride": 2, "padding": 1, "ceil_mode": True}),
    "up, larger than the image": ((1, 2, 2, 7), {"kernel_size": 3, "stride": 2, "ceil_mode": True}),
    "step 1": ((1, 2, 5, 6), {"kernel_size": (3, 2), "stride": 1, "padding": (1, 0)}),
    "gaps": ((1, 2, 9, 9), {"kernel_size": 2, "stride": 3}),
    "gaps and padded": ((1, 2, 9, 8), {"kernel_size": 3, "stride": 4, "padding": 1}),
    "whole image": ((2, 3, 7, 7), {"kernel_size": 7}),
    "line": ((2, 3, 9), {"kernel_size": 3, "stride": 2, "padding": 1}),
    "volume": ((1, 2, 4, 5, 4), {"kernel_size": 2, "padding": 1}),
}
DILATED: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "dilated": ((1, 2, 8, 9), {"kernel_size": 3, "stride": 1, "dilation": 2, "padding": 1}),
    "dilated, apart": ((1, 2, 9, 9), {"kernel_size": 2, "stride": 3, "dilation": 2, "padding": (1, 0)}),
    "dilated, up": ((1, 2, 9, 8), {"kernel_size": 2, "stride": 2, "dilation": (3, 2), "ceil_mode": True}),
}


def random(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(math.prod(shapes[0]))
    return [rng.standard_normal(s) for s in shapes]


def as_tvm(attrs: dict[str, Any]) -> dict[str, Any]:
    return {NAMES.get(name, name): value for name, value in attrs.items()}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name: str) -> None:
    data, weight, attrs = CONVOLUTIONS[name]
    op = f"conv{len(data) - 2}d"
    compare(
        lambda x, w: getattr(ops.nn, op)(x, w, **as_tvm(attrs)),
        lambda x, w: getattr(functional, op)(x, w, **attrs),
        random(data, weight),
    )


@pytest.mark.parametrize("name", TRANSPOSES)
def test_transpose(name: str) -> None:
    data, weight, attrs = TRANSPOSES[name]
    rank = len(data) - 2
    compare(
        lambda x, w: getattr(ops.nn, f"conv{rank}d_transpose")(x, w, **as_tvm(attrs)),
        lambda x, w: getattr(functional, f"conv_transpose{rank}d")(x, w, **attrs),
        random(data, weight),
    )


@pytest.mark.parametrize("transposed", [False, True])
def test_layouts(transposed: bool) -> None:
    attrs: dict[str, Any] = {"stride": 2, "padding": 1}
    theirs = functional.conv_transpose2d if transposed else functional.conv2d
    op = ops.nn.conv2d_transpose if transposed else ops.nn.conv2d
    letters = "HWIO" if not transposed else "HWOI"  # either way PyTorch's kernel is what goes in last … out first
    compare(
        lambda x, w: op(x, w, **as_tvm(attrs), data_layout="NHWC", kernel_layout=letters, out_layout="NCHW"),
        lambda x, w: theirs(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), **attrs),
        random((2, 7, 6, 3), (3, 2, 3, 4) if not transposed else (3, 2, 4, 3)),
    )


def windows_as_tvm(attrs: dict[str, Any]) -> dict[str, Any]:
    """PyTorch's stride is by default the kernel's size, TVM's 1."""
    rest = {n: v for n, v in attrs.items() if n not in ("kernel_size", "stride")}
    return {"pool_size": attrs["kernel_size"], "strides": attrs.get("stride", attrs["kernel_size"])} | rest


@pytest.mark.parametrize("name", WINDOWS | DILATED)
def test_max_pool(name: str) -> None:
    data, attrs = (WINDOWS | DILATED)[name]
    op = f"max_pool{len(data) - 2}d"
    compare(
        lambda x: getattr(ops.nn, op)(x, **windows_as_tvm(attrs)),
        lambda x: getattr(functional, op)(x, **attrs),
        random(data),
    )


@pytest.mark.parametrize("name", WINDOWS)
def test_max_pool_of_equal_elements(name: str) -> None:
    data, attrs = WINDOWS[name]
    op = f"max_pool{len(data) - 2}d"
    values = np.random.default_rng(0).integers(0, 3, data).astype(np.float64)
    for smallest in (0.0, -np.inf):
        compare(
            lambda x: getattr(ops.nn, op)(x, **windows_as_tvm(attrs)),
            lambda x: getattr(functional, op)(x, **attrs),
            [np.where(values == 0, smallest, values)],
        )


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("name", WINDOWS)
def test_average_pool(name: str, include: bool) -> None:
    data, attrs = WINDOWS[name]
    op = f"avg_pool{len(data) - 2}d"
    compare(
        lambda x: getattr(ops.nn, op)(x, **windows_as_tvm(attrs), count_include_pad=include),
        lambda x: getattr(functional, op)(x, **attrs, count_include_pad=include),
        random(data),
    )


@pytest.mark.parametrize("data", [(2, 3, 8, 6), (1, 2, 7, 5), (2, 2, 1, 1), (1, 2, 9), (1, 1, 5, 4, 6)])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_adaptive_average_pool(data: tuple[int, ...], size: int) -> None:
    op = f"adaptive_avg_pool{len(data) - 2}d"
    compare(lambda x: getattr(ops.nn, op)(x, size), lambda x: getattr(functional, op)(x, size), random(data))


def test_nan_reaches_all_windows_that_hold_it() -> None:
    (values,) = random((1, 1, 6, 6))
    values[0, 0, 2, 2] = np.nan
    expected = functional.max_pool2d(torch.tensor(values), 3, 2, 1).numpy()
    builder, x = BlockBuilder(), Var("x", value_info(values))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(ops.nn.max_pool2d(x, 3, 2, 1)))
    module = builder.get()
    np.testing.assert_array_equal(evaluate(module, "main", [values]), expected)
    np.testing.assert_array_equal(pullback.compile(module).function("main")(values).numpy(), expected)
