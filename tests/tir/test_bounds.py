"""Accesses beside a buffer: what is certain is found, what may be right is left alone (see tests/errors too)."""

from __future__ import annotations

import pytest

from pullback.ir import ShapeError
from pullback.script import tir as T
from pullback.tir.bounds import check_bounds


def test_right_kernels() -> None:
    @T.prim_func
    def kernel(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32"), S: T.Buffer(("n",), "float32"), n: T.int64):
        for i in range(4):
            if i < 3:
                B[i] = A[i + 1]
        for i in range(0):
            B[i + 100] = A[0]
        for i, j in T.grid(2, 2):
            B[i * 2 + j] = A[3 - i * 2 - j]
            B[i * 3 + j - i * 2] = A[0]  # a variable that occurs twice: nothing is known
        for i in range(n):
            S[i + 1000] = A[i % 4]

    check_bounds(kernel)


def test_every_place_is_looked_at() -> None:
    @T.prim_func
    def in_index(A: T.Buffer((4,), "float32"), K: T.Buffer((4,), "int64")):
        A[K[4]] = T.float32(0.0)

    @T.prim_func
    def in_condition(A: T.Buffer((4,), "float32")):
        if A[4] > T.float32(0.0):
            A[0] = T.float32(0.0)

    @T.prim_func
    def in_value(A: T.Buffer((4,), "float32"), B: T.Buffer((2, 4), "float32")):
        for i in T.parallel(2):
            x = B[i, i * 4]
            A[i] = x

    for kernel in (in_index, in_condition, in_value):
        with pytest.raises(ShapeError, match=f"{kernel.name}: index 4 is outside axis"):
            check_bounds(kernel)
