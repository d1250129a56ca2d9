"""Products with adjoints in gradients that users write: which are guarded, and which are a contraction's."""

from __future__ import annotations

from pullback import te, tir
from pullback.te.naive import naive_kernel
from pullback.tir.guard import guard_products


def guarded(function, *shapes: tuple[int, ...]) -> str:
    """The kernel of a gradient of (dy, x…), guarded."""
    inputs = [te.placeholder(shape, "float32", f"x{k}") for k, shape in enumerate(shapes)]
    kernel = naive_kernel("gradient", inputs, [function(*inputs)])
    return guard_products(kernel, kernel.buffers[:1]).script()


def test_products_and_quotients_of_an_adjoint() -> None:
    text = guarded(lambda dy, x: te.compute((3,), lambda i: dy[i] * x[i] + dy[i] / x[i] * 2.0), (3,), (3,))
    assert "T.multiply_no_nan(x1[i], x0[i]) + T.xdivy(x0[i], x1[i]) * T.float32(2.0)" in text


def test_through_stages() -> None:
    def gradient(dy, x):
        scaled = te.compute((3,), lambda i: tir.call("abs", x[i]) * -dy[i], "scaled")
        return te.compute((3,), lambda i: scaled[i] / x[i] + x[i] * x[i])

    text = guarded(gradient, (3,), (3,))
    assert "T.multiply_no_nan(T.abs(x1[i]), x0[i] * T.float32(-1.0))" in text
    assert "T.xdivy(scaled[i], x1[i]) + x1[i] * x1[i]" in text


def test_a_contraction_stays_one() -> None:
    k = te.reduce_axis(4, "k")
    text = guarded(lambda dy, w: te.compute((3, 5), lambda i, j: te.sum(dy[i, k.var] * w[k.var, j], k)), (3, 4), (4, 5))
    assert "no_nan" not in text and "x0[i, k] * x1[k, j]" in text
