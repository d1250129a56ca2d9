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
