"""Pooling with more padding than half a window: as long as each window has an element of the data."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import pullback
from pullback.ir import IRModule, ShapeError
from pullback.relax import Function, Var
from pullback.relax.transform import Gradient
from pullback.script import relax as R

CASES = [
    (size, window, stride, before, after, ceil)
    for size, window, stride in [(5, 3, 1), (5, 3, 2), (4, 4, 3), (2, 5, 2), (1, 3, 1), (6, 2, 3)]
    for before, after in itertools.product(range(window), repeat=2)
    if 2 * max(before, after) > window and size + before + after >= window
    for ceil in (False, True)
]


def windows(size, window, stride, before, after, ceil) -> list[tuple[int, int, int]]:
    """Where windows lie: the first and the end of their elements in the data, and the end in the padded data; PyTorch's
    and the reference's rule: a last window of ceil_mode starts within the data or the padding before them."""
    found, start = [], -before
    while True:
        fits = start + window <= size + after
        if not fits and not (ceil and start < size and (not found or found[-1][3] + window < size + after)):
            return [w[:3] for w in found]
        found.append((max(start, 0), min(start + window, size), min(start + window, size + after), start))
        start += stride


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("kind", ["max", "avg", "avg with padding"])
def test_values_and_gradients(case, kind):
    size, window, stride, before, after, ceil = case
    places = windows(*case)
    x = np.random.default_rng(size * 31 + window).permutation(size * 3).reshape(1, 3, size).astype("float64")
    weight = np.arange(1.0, 3 * len(places) + 1).reshape(1, 3, -1)
    expected, dx = np.zeros((1, 3, len(places))), np.zeros_like(x)
    for k, (first, end, whole) in enumerate(places):
        for c in range(3):
            part = x[0, c, first:end]
            if kind == "max":
                expected[0, c, k] = part.max()
                dx[0, c, first + part.argmax()] += weight[0, c, k]
            else:
                start = k * stride - before
                count = len(part) if kind == "avg" else whole - start
                expected[0, c, k] = part.sum() / count
                dx[0, c, first:end] += weight[0, c, k] / count
    options = {"pool_size": window, "strides": stride, "padding": (before, after), "ceil_mode": ceil}
    if kind == "avg with padding":
        options["count_include_pad"] = True
    op = R.nn.max_pool1d if kind == "max" else R.nn.avg_pool1d
    a, w = Var("x", R.Tensor(x.shape, "float64")), Var("w", R.Tensor(weight.shape, "float64"))
    y = op(a, **options)
    assert y.struct_info.shape == weight.shape
    module = IRModule({"pool": Function((a,), y), "main": Function((a, w), R.sum(R.multiply(y, w)))})
    module = Gradient("main", require_grads="x")(_normal(module))
    for target in ("debug", "llvm"):
        compiled = pullback.compile(module, target)
        np.testing.assert_allclose(compiled.function("pool")(x).numpy(), expected, rtol=1e-12)
        np.testing.assert_allclose(compiled.function("main_adjoint")(x, weight)[1][0].numpy(), dx, rtol=1e-12)


def _normal(module: IRModule) -> IRModule:
    from pullback.relax.transform import Normalize

    return Normalize()(module)


@pytest.mark.parametrize(("window", "padding"), [(2, 2), (3, (0, 3)), (3, 4)])
def test_windows_of_padding_alone_are_refused(window, padding):
    with pytest.raises(ShapeError, match="padding must be less than the window") as error:
        R.nn.max_pool1d(Var("x", R.Tensor((1, 1, 8))), window, padding=padding)
    assert error.value.hint
