"""What index arithmetic is at all places of one axis."""

from __future__ import annotations

import numpy as np
import pytest

from pullback import tir
from pullback.schedule.along import Along
from pullback.tir import Buffer, Var, as_expr

J = Var("j")
STEPS = {
    "a quotient": (J * 3 // 10, [4, 7]),
    "of another's remainder": ((J * 7 % 10) // 5, [1, 2, 4, 6, 7, 9]),
    "a comparison": ((J * J) < 20, [5]),
    "a minimum that goes over": (tir.minimum(J, 4), [5]),
    "a maximum that is always one side": (tir.maximum(J, 0), []),
    "sides that are equal in the middle": (tir.minimum(J // 3, 2), [9]),
    "neither": (J + 1, None),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps(name):
    expr, steps = STEPS[name]
    assert Along(J, 10).steps(expr) == steps


def test_values_are_those_of_python():
    along = Along(J, 50)
    expr = tir.maximum((J * 5 - 17) // 3, -(J % 7)) + tir.minimum(J - 9, 11 - J)
    expected = [max((j * 5 - 17) // 3, -(j % 7)) + min(j - 9, 11 - j) for j in range(50)]
    np.testing.assert_array_equal(along.values(expr), expected)
    assert along.range(expr) == (min(expected), max(expected))


@pytest.mark.parametrize("expr", [J + Var("i"), J // (J - 3), Buffer("x", (10,), "int64")[(J,)] + J, J // as_expr(0)])
def test_what_depends_on_something_else_is_not_known(expr):
    assert Along(J, 10).values(expr) is None
    assert Along(J, 10).range(expr) is None


def test_a_long_axis_is_not_looked_at():
    assert Along(J, 1 << 20).values(J * 2) is None
    assert Along(J, 1 << 20).range(as_expr(3)) == (3, 3)
