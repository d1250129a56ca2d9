"""Moving, gathering and scattering elements beside PyTorch's in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from pullback.relax.op.namespace import ops
from tests.relax.op.beside_torch import compare

functional = torch.nn.functional
RNG = np.random.default_rng(4)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def integers(high: int, *shape: int, low: int = 0) -> np.ndarray:
    return RNG.integers(low, high, shape)


def ties(*shape: int) -> np.ndarray:
    """Floats among which many are equal, and some 0."""
    return RNG.integers(-1, 2, shape).astype(np.float64)


MOVED: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[int, ...]]] = {
    "chunk": (lambda x: ops.chunk(x, 4, 1)[2], lambda x: x.chunk(4, 1)[2], (3, 9)),
    "chunk, the last": (lambda x: ops.chunk(x, 4)[-1], lambda x: x.chunk(4)[-1], (5, 2)),
    "unbind": (lambda x: ops.unbind(x, 1)[2], lambda x: x.unbind(1)[2], (3, 4, 2)),
    "roll": (lambda x: ops.roll(x, (2, -1), (0, 2)), lambda x: x.roll((2, -1), (0, 2)), (3, 4, 5)),
    "roll flat": (lambda x: ops.roll(x, 3), lambda x: x.roll(3), (3, 4)),
    "diagonal": (lambda x: ops.diagonal(x, -1, 2, 0), lambda x: x.diagonal(-1, 2, 0), (5, 2, 4)),
    "diagonal above": (lambda x: ops.diagonal(x, 2), lambda x: x.diagonal(2), (4, 5)),
    "meshgrid": (lambda x: ops.meshgrid([x, x], "xy")[1], lambda x: torch.meshgrid(x, x, indexing="xy")[1], (4,)),
    "expand": (lambda x: ops.expand(x, (2, -1, 4)), lambda x: x.expand(2, -1, 4), (3, 1)),
    "pixel_shuffle": (lambda x: ops.nn.pixel_shuffle(x, 2), lambda x: functional.pixel_shuffle(x, 2), (2, 8, 3, 4)),
    "pixel_unshuffle": (
        lambda x: ops.nn.pixel_unshuffle(x, 3),
        lambda x: functional.pixel_unshuffle(x, 3),
        (2, 2, 6, 3),
    ),
    "depth_to_space": (
        lambda x: ops.nn.depth_to_space(x, 2, mode="CRD"),
        lambda x: functional.pixel_shuffle(x, 2),
        (2, 8, 3, 4),
    ),
}


@pytest.mark.parametrize("name", MOVED)
def test_moved(name: str) -> None:
    ours, theirs, shape = MOVED[name]
    compare(ours, theirs, [draw(*shape)])


def test_median() -> None:
    for axis in (0, -1):
        compare(lambda x, a=axis: ops.median(x, a)[0], lambda x, a=axis: x.median(a).values, [draw(4, 5, 3)])
    compare(ops.median, torch.Tensor.median, [draw(4, 5)])


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("widths", [(1, 2), (2, 0, 1, 3), (0, 1, 2, 2, 1, 0)])
def test_pad(mode: str, widths: tuple[int, ...]) -> None:
    data = draw(2, 3, *(4, 5, 3)[: len(widths) // 2])
    pairs = [widths[i : i + 2] for i in range(len(widths) - 2, -1, -2)]  # PyTorch begins with the last axis
    compare(
        lambda x: ops.nn.pad(x, [(0, 0), (0, 0), *pairs], mode),
        lambda x: functional.pad(x, widths, mode),
        [data],
    )


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather(axis: int) -> None:
    indices = integers((4, 3, 5)[axis], 3, 2, 4)
    compare(lambda x, i: ops.gather_elements(x, i, axis), lambda x, i: x.gather(axis, i), [draw(4, 3, 5), indices])


def test_index() -> None:
    values = [draw(4, 5, 3), integers(4, 2, 1, low=-4), integers(5, 6, low=-5)]
    compare(lambda x, i, j: ops.index_tensor(x, [i, j]), lambda x, i, j: x[i, j], values)
    compare(lambda x, i, j: ops.index_tensor(x, [i]), lambda x, i, j: x[i], values)


def test_gather_nd() -> None:
    values = [draw(4, 5, 3), integers(4, 2, 6, 2, low=-4)]
    compare(lambda x, i: ops.gather_nd(x, i), lambda x, i: x[i[..., 0], i[..., 1]], values)
    values = [draw(4, 5, 3), integers(5, 4, 6, 1)]
    batch = torch.arange(4)[:, None]
    compare(lambda x, i: ops.gather_nd(x, i, 1), lambda x, i: x[batch, i[..., 0]], values)


REDUCTIONS = {"add": "sum", "mul": "prod", "mean": "mean", "max": "amax", "min": "amin"}


@pytest.mark.parametrize("numbers", [draw, ties])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_scatter_reduce(reduction: str, axis: int, numbers: Callable[..., np.ndarray]) -> None:
    shape = (4, 3, 5)
    values = [numbers(*shape), integers(shape[axis], 3, 3, 4), numbers(3, 3, 4)]
    compare(
        lambda x, i, u: ops.scatter_elements(x, i, u, axis, reduction),
        lambda x, i, u: x.scatter_reduce(axis, i, u, REDUCTIONS[reduction]),
        values,
    )


def test_scatter_update() -> None:
    """At distinct places: PyTorch leaves open which of several updates stays."""
    indices = np.argsort(draw(3, 5), 1)[:, :4]
    compare(
        lambda x, i, u: ops.scatter_elements(x, i, u, 1),
        lambda x, i, u: x.scatter(1, i, u),
        [draw(3, 5), indices, draw(3, 4)],
    )


def test_index_put() -> None:
    places = [integers(4, 7), integers(5, 7)]
    compare(
        lambda x, v, i, j: ops.index_put(x, [i, j], v, True),
        lambda x, v, i, j: x.index_put((i, j), v, True),
        [draw(4, 5, 3), draw(7, 1), *places],
    )
    distinct = [np.array([0, 3, 2]), np.array([[1], [4]])]
    compare(
        lambda x, v, i, j: ops.index_put(x, [i, j], v),
        lambda x, v, i, j: x.index_put((i, j), v),
        [draw(4, 5, 3), draw(2, 3, 3), *distinct],
    )


def test_scatter_nd() -> None:
    compare(
        lambda x, i, u: ops.scatter_nd(x, i, u, "add"),
        lambda x, i, u: x.index_put((i[:, 0],), u, True),
        [draw(4, 3), integers(4, 9, 1), draw(9, 3)],
    )
