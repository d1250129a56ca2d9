"""Derivatives of scalars beside numeric ones: each operator and intrinsic, at points on both sides of its edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pullback.tir.derivative import _OF_ONE, _OF_SEVERAL, DENSE, MASKED, THINNED, contributions
from pullback.tir.expr import PrimExpr, Select, Var, binary, call, const, maximum, minimum
from pullback.tir.interpreter import evaluate
from pullback.tir.visitor import distinct

X, Y, Z, D = (Var(name, "float64") for name in "xyzd")
STEP = 1e-6

ANY = (-1.7, -0.4, 0.3, 1.6)
INSIDE, POSITIVE, ABOVE = (-0.8, -0.2, 0.5), (0.3, 1.0, 2.5), (1.2, 3.0)
POINTS = {"log": POSITIVE, "log2": POSITIVE, "log10": POSITIVE, "sqrt": POSITIVE, "rsqrt": POSITIVE, "asin": INSIDE,
          "acos": INSIDE, "atanh": INSIDE, "acosh": ABOVE, "log1p": (-0.6, 0.3, 2.0)}  # fmt: skip


def taken(expr: PrimExpr, at: dict[Var, float], degree: int = DENSE, adjoint: float = 1.0) -> dict[Var, float]:
    """What each variable gets of the adjoint."""
    found: dict[Var, float] = {}
    for variable, part in contributions(expr, D, degree):
        found[variable] = found.get(variable, 0.0) + float(evaluate(part, at | {D: adjoint}))
    return found


def check(expr: PrimExpr, at: dict[Var, float]) -> None:
    """The derivatives are those of differences, whatever zeros the adjoint may hold."""
    for degree in (DENSE, THINNED, MASKED):
        found = taken(expr, at, degree, 0.7)
        for variable in at:
            up, down = (float(evaluate(expr, at | {variable: at[variable] + s})) for s in (STEP, -STEP))
            expected = 0.7 * (up - down) / (2 * STEP)
            np.testing.assert_allclose(found.get(variable, 0.0), expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", _OF_ONE)
def test_functions_of_one_argument(name: str) -> None:
    for point in POINTS.get(name, ANY):
        check(call(name, X), {X: point})
        check(call(name, X * 1.0 + 0.1), {X: point})


OF_SEVERAL: dict[str, tuple[PrimExpr, tuple[float, ...], tuple[float, ...]]] = {
    "add": (X + Y, ANY, ANY),
    "sub": (X - Y, ANY, ANY),
    "mul": (X * Y, ANY, ANY),
    "div": (X / Y, ANY, ANY),
    "floormod": (binary("floormod", X, Y), ANY, (0.7, -0.9)),
    "truncmod": (binary("truncmod", X, Y), ANY, (0.7, -0.9)),
    "min": (minimum(X, Y), ANY, (-1.1, 0.9)),
    "max": (maximum(X, Y), ANY, (-1.1, 0.9)),
    "pow": (call("pow", X, Y), POSITIVE, ANY),
    "pow of a negative": (call("pow", X, const(3.0, "float64")) + Y, ANY, (0.5,)),
    "atan2": (call("atan2", X, Y), ANY, ANY),
    "fma": (call("fma", X, Y, X * Y), ANY, ANY),
    "multiply_no_nan": (call("multiply_no_nan", X, Y), ANY, ANY),
    "xdivy": (call("xdivy", X, Y), ANY, ANY),
    "select": (Select(X < Y, X * Y, X - Y), ANY, (-1.1, 0.9)),
    "shared": ((X * Y) * (X * Y) + X, ANY, ANY),
    "a quotient of itself": ((X + Y) / (X * X + 1.0), ANY, ANY),
}


@pytest.mark.parametrize("name", OF_SEVERAL)
def test_functions_of_several_arguments(name: str) -> None:
    expr, first, second = OF_SEVERAL[name]
    for x in first:
        for y in second:
            check(expr, {X: x, Y: y})


def test_all_rules_are_here() -> None:
    assert set(_OF_SEVERAL) <= set(OF_SEVERAL)


@pytest.mark.parametrize("build, x, y, dx, dy", [
    (minimum, 1.0, 1.0, 0.5, 0.5),
    (maximum, 1.0, 1.0, 0.5, 0.5),
    (minimum, 1.0, 2.0, 1.0, 0.0),
    (maximum, 1.0, 2.0, 0.0, 1.0),
    (minimum, 2.0, 1.0, 0.0, 1.0),
    (maximum, 2.0, 1.0, 1.0, 0.0),
    (lambda x, y: call("pow", x, y), 0.0, 0.0, 0.0, 0.0),
    (lambda x, y: call("pow", x, y), 0.0, 1.0, 1.0, 0.0),
    (lambda x, y: call("pow", x, y), 0.0, 2.0, 0.0, 0.0),
    (lambda x, y: call("pow", x, y), 2.0, 0.0, 0.0, np.log(2.0)),
    (lambda x, y: call("abs", x) + y, 0.0, 0.0, 0.0, 1.0),
    (lambda x, y: call("floor", x) + y, 0.5, 0.0, 0.0, 1.0),
    (lambda x, y: call("round", x) * y, 0.7, 3.0, 0.0, 1.0),
])  # fmt: skip
def test_edges(build: Callable[..., PrimExpr], x: float, y: float, dx: float, dy: float) -> None:
    found = taken(build(X, Y), {X: x, Y: y})
    np.testing.assert_allclose([found.get(X, 0.0), found.get(Y, 0.0)], [dx, dy])


@pytest.mark.parametrize("expr, at", [
    (Select(X > 0.0, 1.0 / X, Y), {X: 0.0, Y: 2.0}),
    (Select(X > 0.0, call("log", X), Y), {X: 0.0, Y: 2.0}),
    (Select(X > 0.0, call("sqrt", X) * 3.0, Y), {X: 0.0, Y: 2.0}),
    (Select(X > 0.0, Y / X / X, Y), {X: 0.0, Y: 2.0}),
    (Select(X > 0.0, call("atan2", X, X * Y), Y), {X: 0.0, Y: 2.0}),
    (maximum(call("rsqrt", X), const(np.inf, "float64")) * 0.0 + Y, {X: 0.0, Y: 2.0}),
])  # fmt: skip
def test_what_is_not_taken_has_derivative_zero(expr: PrimExpr, at: dict[Var, float]) -> None:
    """However steep it is there: 0 times infinity does not come up."""
    with np.errstate(all="ignore"):
        found = taken(expr, at)
    assert found.get(X, 0.0) == 0.0 and found[Y] == 1.0


@pytest.mark.parametrize("degree, expr, finite", [
    (DENSE, X * Y, False), (THINNED, X * Y, False), (MASKED, X * Y, True),
    (DENSE, X / Y, False), (THINNED, X / Y, True), (MASKED, X / Y, True),
    (DENSE, call("exp", X + Y), False), (THINNED, call("exp", X + Y), True), (MASKED, call("exp", X + Y), True),
    (DENSE, call("fma", X, Y, Z), False), (THINNED, call("fma", X, Y, Z), False), (MASKED, call("fma", X, Y, Z), True),
])  # fmt: skip
def test_degrees_of_zeros(degree: int, expr: PrimExpr, finite: bool) -> None:
    """An adjoint of 0 meets an infinite derivative: products are guarded from the last degree on, all else earlier."""
    y = 0.0 if expr.dtype and getattr(expr, "kind", "") == "div" else np.inf
    with np.errstate(all="ignore"):
        found: dict[Any, float] = taken(expr, {X: 2.0, Y: y, Z: 1.0}, degree, 0.0)
    assert (found[X] == 0.0) is finite and np.isnan(found[X]) is not finite


@pytest.mark.parametrize("factor, is_guarded", [(0.2, False), (-3.0, False), (np.inf, True), (np.nan, True)])
def test_products_with_finite_numbers_need_no_guard(factor: float, is_guarded: bool) -> None:
    """A zero stays one when it is multiplied by a finite number."""
    ((_, part),) = contributions(X * const(factor, "float64"), Y, MASKED)
    assert any(getattr(n, "name", "") == "multiply_no_nan" for n in distinct(part)) is is_guarded
