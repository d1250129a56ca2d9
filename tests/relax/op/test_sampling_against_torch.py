"""Resizing and sampling images, embeddings and further poolings beside PyTorch's in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from pullback.relax.op.namespace import ops
from tests.relax.op.beside_torch import compare

functional = torch.nn.functional
RNG = np.random.default_rng(6)
SIZES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "line": ((2, 3, 7), (11,)),
    "line, less": ((2, 1, 9), (4,)),
    "up": ((2, 3, 4, 5), (7, 9)),
    "down": ((1, 2, 9, 8), (4, 3)),
    "both": ((1, 2, 5, 6), (10, 3)),
    "one": ((1, 2, 5, 1), (1, 4)),
    "volume": ((1, 2, 3, 4, 2), (5, 3, 4)),
}
METHODS = {("linear", 1): "linear", ("linear", 2): "bilinear", ("linear", 3): "trilinear", ("cubic", 2): "bicubic"}


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


RESIZED = [(m, n) for n, (_, size) in SIZES.items() for m in ("linear", "cubic") if (m, len(size)) in METHODS]


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize(("method", "name"), RESIZED)
def test_resize(method: str, align: bool, name: str) -> None:
    data, size = SIZES[name]
    mode = METHODS[method, len(size)]
    coordinates = "align_corners" if align else "half_pixel"
    compare(
        lambda x: getattr(ops.image, f"resize{len(size)}d")(
            x, size, method=method, coordinate_transformation_mode=coordinates
        ),
        lambda x: functional.interpolate(x, size, mode=mode, align_corners=align),
        [draw(*data)],
    )


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("exact", [False, True])
def test_resize_to_nearest(exact: bool, name: str) -> None:
    data, size = SIZES[name]
    places = ("half_pixel", "round") if exact else ("asymmetric", "floor")
    compare(
        lambda x: getattr(ops.image, f"resize{len(size)}d")(
            x, size, method="nearest_neighbor", coordinate_transformation_mode=places[0], rounding_method=places[1]
        ),
        lambda x: functional.interpolate(x, size, mode="nearest-exact" if exact else "nearest"),
        [draw(*data)],
    )


@pytest.mark.parametrize("padding", [None, 2, -1])
def test_embedding(padding: int | None) -> None:
    compare(
        lambda i, w: ops.nn.embedding(i, w, padding),
        lambda i, w: functional.embedding(i, w, padding),
        [RNG.integers(0, 5, (3, 4)), draw(5, 6)],
    )


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """The half-split form as it is usually written for PyTorch."""
    a, b = x.chunk(2, -1)
    double: Any = lambda v: torch.cat((v, v), -1)  # noqa: E731
    return x * double(cos) + torch.cat((-b, a), -1) * double(sin)


def test_rotary_embedding() -> None:
    compare(ops.nn.rotary_embedding, turned, [draw(2, 4, 5, 6), draw(1, 1, 5, 3), draw(1, 1, 5, 3)])


GRIDS = {
    "image": ((2, 3, 5, 4), (2, 3, 4, 2), "NCHW"),
    "volume": ((1, 2, 3, 4, 5), (1, 2, 3, 2, 3), "NCDHW"),
    "one pixel": ((1, 2, 1, 1), (1, 2, 2, 2), "NCHW"),
}
SAMPLED = [(m, n) for m in ("bilinear", "nearest", "bicubic") for n in GRIDS if (m, n) != ("bicubic", "volume")]


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(("method", "name"), SAMPLED)
def test_grid_sample(method: str, name: str, padding: str, align: bool) -> None:
    data, grid, layout = GRIDS[name]
    last = len(data) - 1
    compare(
        lambda x, g: ops.image.grid_sample(
            x, ops.permute_dims(g, (0, last, *range(1, last))), method, layout, padding, align
        ),
        lambda x, g: functional.grid_sample(x, g, method, padding, align),
        [draw(*data), RNG.uniform(-1.4, 1.4, grid)],
    )


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", [(3, 4), (5, 1), (2, 3, 4)])
def test_affine_grid(size: tuple[int, ...], align: bool) -> None:
    rank = len(size)
    compare(
        lambda x: ops.permute_dims(ops.image.affine_grid(x, size, align), (0, *range(2, rank + 2), 1)),
        lambda x: functional.affine_grid(x, (2, 1, *size), align),
        [draw(2, rank, rank + 1)],
    )


@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("data", [(2, 3, 9), (2, 2, 7, 6), (1, 2, 5, 4, 3)])
def test_lp_pool(data: tuple[int, ...], norm: float, up: bool) -> None:
    op = f"lp_pool{len(data) - 2}d"
    compare(
        lambda x: getattr(ops.nn, op)(x, norm, 2, 2, ceil_mode=up),
        lambda x: getattr(functional, op)(x, norm, 2, 2, up),
        [RNG.uniform(0.2, 2.0, data)],
    )


@pytest.mark.parametrize("name", ["avg", "max"])
@pytest.mark.parametrize("data", [(2, 3, 9), (2, 2, 7, 6), (1, 2, 5, 4, 3)])
def test_global_pools(data: tuple[int, ...], name: str) -> None:
    op = f"{name}_pool{len(data) - 2}d"
    compare(
        getattr(ops.nn, f"global_{op}"),
        lambda x: getattr(functional, f"adaptive_{op}")(x, 1),
        [draw(*data)],
    )
