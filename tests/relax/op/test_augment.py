"""Ops that augment: each image draws for itself, evenly, the same by native code and by the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback
from pullback.ir import ShapeError, UserError
from pullback.relax import TensorStructInfo, Var
from pullback.relax.op.namespace import ops
from pullback.relax.transform import Gradient
from tests.relax.op.test_random import assert_even, assert_share, module_of, state

N = 20_000


def run(build: Any, data: np.ndarray, seed: int = 0, place: int = 0) -> np.ndarray:
    """What an op makes of data with a state, by native code and by the interpreter: the same bits."""
    module = module_of(build, TensorStructInfo(data.shape, data.dtype.name))
    native, slow = (pullback.compile(module, t)["main"](data, state(seed, place)).numpy() for t in ("llvm", "debug"))
    np.testing.assert_array_equal(native, slow)
    return native


def marked(shape: tuple[int, ...]) -> np.ndarray:
    """Images with one pixel above 0, in the middle: its place says how far they were moved."""
    images = np.zeros(shape, np.float32)
    images[(slice(None), *(s // 2 for s in shape[1:]))] = 1
    return images


@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 1.0])
def test_each_image_is_flipped_with_the_probability(p):
    data = np.tile(np.array([0, 1], np.float32), (N, 1))
    flipped = run(lambda x, s: ops.image.random_flip(x, s, p=p), data)[:, 0] == 1
    assert_share(flipped, p)
    if 0 < p < 1:  # neighbours are independent
        assert_share(flipped[1:] & flipped[:-1], p * p)


def test_flips_of_axes_types_and_states():
    data = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
    np.testing.assert_array_equal(run(lambda x, s: ops.image.random_flip(x, s, 1, 1.0), data), data[:, ::-1])
    both = run(lambda x, s: ops.image.random_flip(x, s, (-2, -1), 1.0), data)
    np.testing.assert_array_equal(both, data[:, ::-1, ::-1])
    many = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    drawn = [run(lambda x, s: ops.image.random_flip(x, s), many, *at) for at in ((0, 0), (0, 0), (1, 0), (0, 1))]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2]) and not np.array_equal(drawn[0], drawn[3])


def test_windows_lie_everywhere_alike():
    moved = run(lambda x, s: ops.image.random_crop(x, s, (5, 7), (2, 3)), marked((N, 5, 7)))
    rows, columns = np.nonzero(moved.sum(2))[1], np.nonzero(moved.sum(1))[1]
    assert len(rows) == N
    assert_even(rows, 5)
    assert_even(columns, 7)
    assert_even(rows * 7 + columns, 35)  # the axes are independent
    places = run(lambda x, s: ops.image.random_crop(x, s, (3,)), np.tile(np.arange(8, dtype=np.float32), (N, 1)))
    np.testing.assert_array_equal(places[:, 1:] - places[:, :-1], 1)
    assert_even(places[:, 0].astype(np.int64), 6)


@pytest.mark.parametrize(
    ("mode", "value", "numpy"), [("constant", 0.5, "constant"), ("reflect", 0.0, "reflect"), ("circular", 0.0, "wrap")]
)
def test_windows_of_padded_images(mode, value, numpy):
    data = np.random.default_rng(0).normal(size=(40, 2, 3, 4)).astype(np.float32)
    found = run(lambda x, s: ops.image.random_crop(x, s, (3, 4), (1, 2), mode, value), data)
    more = {"constant_values": value} if mode == "constant" else {}
    padded = np.pad(data, [(0, 0), (0, 0), (1, 1), (2, 2)], numpy, **more)
    for image, windows in zip(found, padded, strict=True):
        candidates = [windows[:, i : i + 3, j : j + 4] for i in range(3) for j in range(5)]
        assert any(np.array_equal(image, c) for c in candidates)


def test_the_window_of_inference_is_the_middle():
    data = np.arange(2 * 5 * 6, dtype=np.float32).reshape(2, 5, 6)
    for size, padding, expected in (
        ((5, 6), 3, data),
        ((3, 2), 0, data[:, 1:4, 2:4]),
        ((5, 6), (2, 0, 0, 0), data),
        ((3, 8), (0, 0, 0, 2), np.pad(data, [(0, 0), (0, 0), (0, 2)])[:, 1:4]),
        ((5, 9), (1, 3, 0, 1), np.pad(data, [(0, 0), (0, 0), (2, 1)])),
    ):
        module = module_of(
            lambda x, s, a=(size, padding): ops.image.random_crop(x, size=a[0], padding=a[1], training=False),
            TensorStructInfo(data.shape, "float32"),
        )
        for target in ("llvm", "debug"):
            found = pullback.compile(module, target)["main"](data, state()).numpy()
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("alpha", [0.1, 0.4, 1.0, 2.0, 30.0])
def test_shares_are_of_the_beta_distribution(alpha):
    """Moments of Beta(a, a): variance 1 / (8a + 4), and E[(s - ½)⁴] = 3·variance² · (2a + 1) / (2a + 3)."""
    data = np.zeros((2 * N, 1), np.float32)
    data[:N] = 1
    mixed = run(lambda x, s: ops.nn.mixup(x, s, alpha), data)[:, 0]
    shares = np.concatenate([mixed[:N], 1 - mixed[N:]]).astype(float) - 0.5
    variance = 1 / (8 * alpha + 4)
    fourth = 3 * variance**2 * (2 * alpha + 1) / (2 * alpha + 3)
    assert abs(shares.mean()) < 5 * np.sqrt(variance / len(shares))
    assert abs((shares**2).mean() - variance) < 5 * np.sqrt((fourth - variance**2) / len(shares))
    assert abs((shares**4).mean() / fourth - 1) < 0.06
    assert abs(np.corrcoef(shares[:N], shares[: N - 1 : -1])[0, 1]) < 0.05  # partners draw for themselves


def test_rows_are_mixed_with_those_from_the_end():
    data = np.random.default_rng(0).normal(size=(7, 2, 3)).astype(np.float32)
    found = run(lambda x, s: ops.nn.mixup(x, s, 1.0), data)
    np.testing.assert_allclose(found[3], data[3], rtol=1e-6)  # the middle one has none but itself
    shares = (found - data[::-1])[[0, 1, 2, 4, 5, 6]] / (data - data[::-1])[[0, 1, 2, 4, 5, 6]]
    np.testing.assert_allclose(shares, np.broadcast_to(shares[:, :1, :1], shares.shape), atol=1e-4)
    assert len(set(np.round(shares[:, 0, 0], 4))) == 6


@pytest.mark.parametrize(
    "build",
    [
        lambda x, s: ops.nn.mixup(x, s),
        lambda x, s: ops.image.random_flip(x, s),
        lambda x, s: ops.image.random_crop(x, s, (3, 4), 1),
        lambda x, s: ops.image.random_crop(x, s, (2, 2), 0, "reflect"),
    ],
)
@pytest.mark.parametrize("target", ["llvm", "debug"])
def test_the_adjoint_goes_back_the_same_way(build, target):
    """⟨c, f(x)⟩ = ⟨fᵀc, x⟩ of a linear f."""
    source = np.random.default_rng(0)
    x = source.normal(size=(30, 2, 3, 4))
    forward = module_of(build, TensorStructInfo(x.shape, "float64"))
    y = pullback.compile(forward, target)["main"](x, state(3)).numpy()
    c = source.normal(size=y.shape)
    infos = (TensorStructInfo(x.shape, "float64"), TensorStructInfo(y.shape, "float64"))
    module = module_of(lambda a, b, s: ops.sum(build(a, s) * b), *infos)
    adjoint = Gradient("main", [module["main"].params[0]])(module)
    _, (dx,) = pullback.compile(adjoint, target)["main_adjoint"](x, c, state(3))
    np.testing.assert_allclose((dx.numpy() * x).sum(), (c * y).sum(), rtol=1e-12)


def _var(*shape: int, dtype: str = "float32") -> Var:
    return Var("x", TensorStructInfo(shape, dtype))


REFUSED = {
    "rows": (lambda: ops.image.random_flip(_var(3, 4), axis=0), "the first axis counts the images, and is not flipped"),
    "p": (lambda: ops.image.random_flip(_var(3, 4), p=1.5), "p must be a number from 0 to 1, got 1.5"),
    "room": (lambda: ops.image.random_crop(_var(3, 4, 4), size=(7, 4), padding=1), "a window of (7, 4) has no room"),
    "axes": (lambda: ops.image.random_crop(_var(3, 4), size=(4, 4)), "data of rank 2 have no axes for the size (4, 4)"),
    "mode": (lambda: ops.image.random_crop(_var(3, 4), size=(4,), pad_mode="edge"), "pad_mode must be one of"),
    "state": (lambda: ops.image.random_flip(_var(3, 4), _var(3, dtype="uint64")), "the state must be"),
    "alpha": (lambda: ops.nn.mixup(_var(3, 4), alpha=0.0), "alpha must be a positive, finite number, got 0.0"),
    "whole": (lambda: ops.nn.mixup(_var(3, dtype="int64")), "data must have a floating-point dtype, got int64"),
    "offsets": (
        lambda: ops.image.crop(_var(3, 4, 4), _var(3, 2, dtype="int32"), (2, 2)),
        "offsets must be Tensor((3, 2), int64), got Tensor((3, 2), int32)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_arguments(name):
    make, message = REFUSED[name]
    with pytest.raises((ShapeError, UserError)) as caught:
        make()
    assert message in caught.value.message


def test_what_draws_without_a_state_is_refused():
    module = module_of(lambda x, s: ops.image.random_flip(x), TensorStructInfo((3, 4), "float32"))
    for target in ("llvm", "debug"):
        with pytest.raises(UserError, match=r"image\.random_flip draws random numbers, and has no state"):
            pullback.compile(module, target)["main"](np.zeros((3, 4), np.float32), state())
