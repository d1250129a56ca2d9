"""Regions of interest: images of which the results are known, rois that are none, and calls that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback
from pullback.ir.errors import ArgumentError, DTypeError, ShapeError, UserError
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Var
from pullback.relax.interpreter import value_info
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.transform.gradient import Gradient

TARGETS = pytest.mark.parametrize("target", ["debug", "llvm"])


def module_of(f: Any, *arrays: np.ndarray) -> Any:
    params = [Var(f"x{k}", value_info(a)) for k, a in enumerate(arrays)]
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(f(*params)))
    return builder.get()


def run(f: Any, *arrays: np.ndarray, target: str) -> np.ndarray:
    return pullback.compile(module_of(f, *arrays), target).function("main")(*arrays).numpy()


def plane(height: int, width: int) -> np.ndarray:
    """An image in which the pixel (x, y) has the value x + 100·y, and one with the negative values."""
    image = np.arange(width) + 100.0 * np.arange(height)[:, None]
    return np.stack([image, -image])[None]


@TARGETS
@pytest.mark.parametrize("ratio", [-1, 1, 3])
def test_interpolation_of_a_plane(ratio: int, target: str) -> None:
    """The mean of samples around the middle of a bin is the value there; the greatest is that of its last sample."""
    rois = np.array([[0, 1.0, 2.0, 7.0, 6.0], [0, 2.25, 3.5, 4.0, 4.75]])
    attrs: dict[str, Any] = {"pooled_size": (2, 3), "spatial_scale": 1.0, "sample_ratio": ratio}
    for mode in ("avg", "max"):
        found = run(lambda x, r, m=mode: ops.vision.roi_align(x, r, **attrs, mode=m), plane(9, 10), rois, target=target)
        for k, (_, left, top, right, bottom) in enumerate(rois):
            steps = (bottom - top) / 2, (right - left) / 3
            counts = [ratio if ratio > 0 else int(np.ceil(s)) for s in steps]
            for i, j in np.ndindex(2, 3):
                y, x = top + (i + 0.5) * steps[0], left + (j + 0.5) * steps[1]
                if mode == "max":
                    y, x = (v + (0.5 - 0.5 / n) * s for v, n, s in zip((y, x), counts, steps, strict=True))
                np.testing.assert_allclose(found[k, 0, i, j], x + 100 * y)


@TARGETS
def test_derivatives_of_a_plane(target: str) -> None:
    """Of the mean of a whole roi for its corners: half of the slopes; for the pixels: shares that add up to 1."""
    rois = np.array([[0, 1.2, 2.3, 7.1, 6.4]])
    module = module_of(
        lambda x, r: ops.sum(ops.vision.roi_align(x, r, 1, 1.0) * np.array([1.0, 0.0]).reshape(1, 2, 1, 1)),
        plane(9, 10),
        rois,
    )
    _, (dx, drois) = pullback.compile(Gradient("main")(module), target).function("main_adjoint")(plane(9, 10), rois)
    np.testing.assert_allclose(drois.numpy(), [[0, 0.5, 50, 0.5, 50]])
    np.testing.assert_allclose(dx.numpy().sum((2, 3)), [[1, 0]])
    assert dx.numpy().min() >= 0


@pytest.mark.parametrize(("target", "far"), [("debug", 1e2), ("llvm", 1e6)])
def test_outside(target: str, far: float) -> None:
    """Samples more than a pixel outside are 0, for the maximum too; a roi that is very large ends all the same."""
    rois = np.array([[0, -9.0, -9.0, -3.0, -3.0], [0, -3.0, -3.0, 1.0, 1.0], [0, -far, -far, far, far]])
    image = plane(4, 4) + np.array([1.0, -1.0]).reshape(2, 1, 1)
    mean, most = (
        run(lambda x, r, m=m: ops.vision.roi_align(x, r, 1, 1.0, mode=m), image, rois, target=target)[:, :, 0, 0]
        for m in ("avg", "max")
    )
    assert not mean[0].any() and not most[0].any()
    assert 0 < mean[1, 0] < most[1, 0] and most[1, 1] == 0
    assert np.all(np.abs(mean[2]) < 1e4 / far) and most[2, 0] > 300 and most[2, 1] == 0


@TARGETS
def test_greatest_pixels(target: str) -> None:
    """The corners are rounded, and both are in; bins share pixels where they do not divide the roi."""
    rois = np.array([[0, 1.4, 0.6, 5.4, 3.5], [0, 7.0, 2.0, 7.0, 2.0], [0, 20.0, 20.0, 30.0, 30.0]])
    found = run(lambda x, r: ops.vision.roi_pool(x, r, (2, 2), 1.0), plane(9, 10), rois, target=target)
    np.testing.assert_array_equal(found[0, 0], [[203, 205], [403, 405]])  # rows 1 2 | 3 4, columns 1 2 3 | 3 4 5
    np.testing.assert_array_equal(found[0, 1], [[-101, -103], [-301, -303]])
    np.testing.assert_array_equal(found[1, 0], np.full((2, 2), 207))
    assert not found[2].any()


@TARGETS
@pytest.mark.parametrize("bad", [[2, 0, 0, 1, 1], [-1, 0, 0, 1, 1], [0, np.nan, 0, 1, 1], [0, 0, 0, 1, np.inf]])
def test_rois_that_are_none(bad: list[float], target: str) -> None:
    rois = np.array([[0, 0, 0, 1, 1], bad], np.float64)
    image = np.ones((2, 1, 3, 3))
    for f in (ops.vision.roi_align, ops.vision.roi_pool):
        with pytest.raises(ArgumentError, match="a roi names no batch of data, or has a corner that lies more than"):
            run(lambda x, r, f=f: f(x, r, 2, 1.0), image, rois, target=target)


def _var(shape: tuple[int, ...], dtype: str = "float32") -> Var:
    return Var("x", TensorStructInfo(shape, dtype))


X, R, B = _var((2, 3, 5, 6)), _var((4, 5)), _var((4,), "int64")
ALIGN, POOL = ops.vision.roi_align, ops.vision.roi_pool
ERRORS: dict[str, tuple[Any, type[UserError], str]] = {
    "data": (lambda: ALIGN(_var((3, 5, 6)), R, 2, 1.0), ShapeError, r"must be images that have pixels, got the shape"),
    "no pixels": (lambda: POOL(_var((2, 3, 0, 6)), R, 2, 1.0), ShapeError, "data must be images that have pixels"),
    "integers": (lambda: POOL(_var((2, 3, 5, 6), "int32"), R, 2, 1.0), DTypeError, "floating-point dtype, got int32"),
    "rois": (lambda: ALIGN(X, _var((4, 4)), 2, 1.0), ShapeError, r"rois must have the shape \(rois, 5\), got \(4, 4\)"),
    "dtypes": (lambda: ALIGN(X, _var((4, 5), "float64"), 2, 1.0), DTypeError, "must have the same dtype"),
    "size": (lambda: POOL(X, R, (2, 0), 1.0), ShapeError, r"pooled_size must be two positive numbers, got \(2, 0\)"),
    "three sizes": (lambda: ALIGN(X, R, (2, 2, 2), 1.0), ShapeError, "pooled_size must be two positive numbers"),
    "float size": (lambda: ALIGN(X, R, (2.5, 2), 1.0), UserError, "pooled_size must be an int, got 2.5"),
    "layout": (lambda: ALIGN(X, R, 2, 1.0, layout="CHW"), UserError, "layout must be one of 'NCHW', 'NHWC', got 'CHW'"),
    "pool layout": (lambda: POOL(X, R, 2, 1.0, layout="NHWC"), UserError, "layout must be one of 'NCHW', got 'NHWC'"),
    "mode": (lambda: ALIGN(X, R, 2, 1.0, mode="sum"), UserError, "mode must be one of 'avg', 'max', got 'sum'"),
    "batches": (
        lambda: ops.vision.roi_average(X, _var((3,), "int64"), R, 2),
        ShapeError,
        r"there must be a batch for each roi, got \(3,\)",
    ),
    "float batches": (lambda: ops.vision.roi_maxima(X, _var((4,)), R, 2), DTypeError, "batches must have an integer"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    make, kind, message = ERRORS[name]
    with pytest.raises(kind, match="vision.roi_.*: .*" + message):
        make()


@TARGETS
def test_the_first_of_equal_pixels_is_the_greatest(target: str) -> None:
    """It alone gets the adjoint."""
    rois, image = np.array([[0, 0.0, 0.0, 3.0, 2.0]]), np.ones((1, 1, 4, 5))
    image[0, 0, 0, 0] = 0.0
    module = module_of(lambda x, r: ops.sum(ops.vision.roi_pool(x, r, 1, 1.0)), image, rois)
    adjoint = Gradient("main", ["x0"])(module)
    parameter = adjoint["main_adjoint"].params[0].name
    assert parameter == "x0"
    _, (dx,) = pullback.compile(adjoint, target).function("main_adjoint")(image, rois)
    assert np.argwhere(dx.numpy()[0, 0]).tolist() == [[0, 1]]
