"""Sizes in canonical form."""

from __future__ import annotations

import pytest

from pullback.tir import Var
from pullback.tir.expr import as_expr
from pullback.tir.interpreter import evaluate
from pullback.tir.polynomial import at_most, quotient, same, simplify

N, M = Var("n"), Var("m")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (N + N, N * 2),
        (N * (M + 2) - N * 2, N * M),
        ((N + 1) * (N - 1), N * N - 1),
        (N // 2 + M, M + N // 2),
        ((N + M) // 4, (M + N) // 4),
        (N - N, 0),
        (3, 3),
    ],
)
def test_same(a, b):
    assert same(a, b)


@pytest.mark.parametrize(("a", "b"), [(N, M), (N * 2, N * 3), (N // 2, N % 2), (N + 1, N), (N, Var("n")), (3, 4)])
def test_different(a, b):
    assert not same(a, b)


def test_constants_fold():
    assert simplify(N * 0 + 7).value == 7
    assert simplify((N + 3 - N) * 2).value == 6


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (N // 2 * 2 + N % 2, N),
        ((N * 6 + 5) // 3, N * 2 + 1),
        ((N * 4 + M * 2 + 1) // 2, N * 2 + M),
        ((N * 4 + M + 7) // 2, N * 2 + (M + 7) // 2),
        ((N + 1) % 3 + (N + 1) // 3 * 3 - 1, N),
        (N * 6 % 3, 0),
        (((N - 1) // 2 * 2 + (N - 1) % 2) // 4, (N - 1) // 4),
        ((N * -2 + 1) // 2, N * -1),
    ],
)
def test_quotients_and_remainders_are_taken_apart(a, b):
    assert same(a, b)
    for n in range(-3, 9):
        for m in range(-3, 9):
            values = [evaluate(as_expr(e), {N: n, M: m}) for e in (a, b)]
            assert values[0] == values[1]


@pytest.mark.parametrize(
    ("a", "b"),
    [(N // 2 * 2, N), (N % 2, 0), ((N * 3 + 1) // 2, N + 1), (N // M * M + N % M + 1, N), (N // 2 // 2, N // 2)],
)
def test_what_is_left_of_them_counts(a, b):
    assert not same(a, b)


def test_what_is_at_most_another():
    assert at_most(3, 3)
    assert at_most(N + 2, N + 2)
    assert at_most(N * 2 - 1, N + N)
    assert not at_most(4, 3)
    assert not at_most(N + 1, N)
    assert not at_most(N, M)
    assert not at_most(0, N)  # it may be, but not for all values


@pytest.mark.parametrize(
    ("above", "below", "expected"),
    [
        (N * 4, N * 2, 2),
        (N * M * 6, M * 3, N * 2),
        (N * M + M * 2, M, N + 2),
        (N * N, N, N),
        (N * 3, 3, N),
        (12, 4, 3),
    ],
)
def test_quotients_of_terms_have_no_division(above, below, expected):
    found = quotient(above, below)
    assert same(found, expected)
    assert "//" not in str(found)


@pytest.mark.parametrize(("above", "below"), [(N, 2), (N * M, N + 1), (N + 1, N), (N * 3, N * 2)])
def test_other_quotients_are_divisions(above, below):
    assert "//" in str(quotient(above, below))
