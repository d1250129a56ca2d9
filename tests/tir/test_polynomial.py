"""Sizes in canonical form."""

from __future__ import annotations

import pytest

from pullback.tir import Var
from pullback.tir.polynomial import same, simplify

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
    ],
)
def test_same(a, b):
    assert same(a, b)


@pytest.mark.parametrize(("a", "b"), [(N, M), (N * 2, N * 3), (N // 2, N % 2), (N + 1, N), (N, Var("n"))])
def test_different(a, b):
    assert not same(a, b)


def test_constants_fold():
    assert simplify(N * 0 + 7).value == 7
    assert simplify((N + 3 - N) * 2).value == 6
