"""What Python would answer about the objects of a program, once and for all, is refused: it is asked about values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback
from pullback import relax, te, tir
from pullback.ir import UserError
from pullback.relax import op
from tests.errors.models import counting_trainer, linear

X = relax.Var("x", relax.TensorStructInfo((2, 3), "float32"))
N = relax.Var("n", relax.TensorStructInfo((tir.Var("n"), 3), "float32"))
A, INDEX = te.placeholder((4,), "float32"), tir.Var("i")


def change(value: Any) -> None:
    value[0] = 1.0


def remove(value: Any) -> None:
    del value[0]


def element(function: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: te.compute((4,), lambda i: function(A[i]))


MISTAKES: dict[str, Callable[[], Any]] = {
    "if": lambda: 1 if X > 0 else 2,
    "and": lambda: (X > 0) and (X < 1),
    "max": lambda: max(X, X),
    "in": lambda: 1.0 in X,
    "float": lambda: float(X),
    "int": lambda: int(X),
    "complex": lambda: complex(X),
    "math": lambda: math.exp(X),
    "array": lambda: np.asarray(X),
    "stack": lambda: np.stack([X, X]),
    "length": lambda: len(N),
    "change": lambda: change(X),
    "delete": lambda: remove(X),
    "iterate": lambda: list(X),
    "equal to a number": lambda: X * (X == 0),
    "equal to a tensor": lambda: op.where(X == N, X, X),
    "element if": element(lambda a: a if a > 0 else 0.0),
    "element and": element(lambda a: (a > 0) and (a < 1)),
    "element max": element(lambda a: max(a, 0.0)),
    "element float": element(lambda a: float(a)),
    "element math": element(lambda a: math.sqrt(a)),
    "element numpy": element(lambda a: np.exp(a)),
    "element equal": element(lambda a: tir.select(a == 0, 1.0, a)),
    "element is equal": element(lambda a: a == 0),
    "element not equal": element(lambda a: (a > 0) & (a != 1)),
    "element changed": element(change),
    "other arguments": lambda: te.compute((4,), lambda i, j: A[i]),
    "no arguments": lambda: te.compute((4,), lambda: 0.0),
    "a tensor expression plus": lambda: A + 1.0,
    "a tensor expression times": lambda: 2.0 * A,
    "a tensor expression as a number": lambda: float(A),
    "a tensor expression in numpy": lambda: np.ones(4) * A,
    "call of a module": lambda: linear(np.ones((4, 3))),
    "call of an executable": lambda: pullback.compile(linear, "debug")(np.ones((4, 3))),
    "call of a trainer": lambda: counting_trainer()(np.ones((4, 3))),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_it_is_an_error_that_says_how_to_mend_it(name: str) -> None:
    with pytest.raises(UserError) as caught:
        MISTAKES[name]()
    assert caught.value.hint


def test_lengths_that_are_known() -> None:
    assert len(X) == 2 == len(list(op.unbind(X)))
    assert len(relax.Tuple([X, X, N])) == 3
    pair = relax.Var("p", relax.TupleStructInfo([X.struct_info, N.struct_info]))
    assert len(pair) == 2


def test_constants_are_said_to_be_some() -> None:
    mask = relax.const(True)
    assert op.logical_and(X > 0, mask).dtype == "bool"
    assert tir.select(tir.IntImm(1, "bool"), INDEX, 0) is INDEX
