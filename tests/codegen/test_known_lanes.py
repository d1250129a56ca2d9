"""Vectorized accesses whose places are known numbers apart in each lane: strides, quotients, bounds."""

import re

import numpy as np
import pytest

from pullback.codegen import compile_assembly, emit_module
from pullback.schedule.transpose import turned_tile
from pullback.target import Target
from pullback.tir import Allocate, Buffer, PrimFunc, loop, maximum, minimum, select, seq, store

ACCESSES = {
    "every second": lambda i, n: i * 2 + 1,
    "every third": lambda i, n: i * 3,
    "every fifth": lambda i, n: i * 5 + 2,
    "backwards": lambda i, n: n - 1 - i,
    "each twice": lambda i, n: i // 2,
    "first of pairs": lambda i, n: i // 2 * 2,
    "odd and even": lambda i, n: i % 2,
    "thirds": lambda i, n: (i + 1) // 3 + i % 3,
    "bounded": lambda i, n: maximum(minimum(i * 2 - 1, n - 2), 0),
    "bounded quotient": lambda i, n: minimum((i + 1) // 2, n // 3),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool"])
@pytest.mark.parametrize("name", ACCESSES)
def test_loads(native, name, dtype):
    """All lengths up to three vectors of floats, at run time, as one vector and as several written out."""
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 5, 8, 15, 16, 17, 28, 33, 48):
        rows, size = 3, 5 * n + 4
        A, B = Buffer("A", (rows, size), dtype), Buffer("B", (rows, n), dtype)
        body = loop("r", rows, lambda r, A=A, B=B, n=n: loop(
            "i", n, lambda i: store(B, (r, i), A[r, ACCESSES[name](i, n)]), "vectorized"))  # fmt: skip
        values = rng.integers(0, 2 if dtype == "bool" else 100, (rows, size)).astype(dtype)
        native.check(PrimFunc("kernel", (A, B), body), values, np.zeros((rows, n), dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
@pytest.mark.parametrize("stride", [2, 3, 4, 7, -2])
def test_stores_write_nothing_between(native, stride, dtype):
    for n in (1, 6, 7, 16, 21, 40):
        size = (n - 1) * abs(stride) + 1  # nor behind the last one, where the buffer ends
        A, B = Buffer("A", (n,), dtype), Buffer("B", (size,), dtype)
        first = size - 1 if stride < 0 else 0
        body = loop("i", n, lambda i, A=A, B=B, first=first: store(B, i * stride + first, A[i] + A[i]), "vectorized")
        native.check(PrimFunc("kernel", (A, B), body), np.arange(n).astype(dtype), np.full(size, 9, dtype))


def test_near_ones_are_stored_as_vectors():
    """Where masks cost nothing: one by one is a move and a store for each lane."""
    A, B = Buffer("A", (16,)), Buffer("B", (32,))
    func = PrimFunc("kernel", (A, B), loop("i", 16, lambda i: store(B, i * 2, A[i]), "vectorized"))
    target = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4")
    text = compile_assembly(emit_module([func], target), target)
    assert len(re.findall(r"vmov[au]ps\s+%zmm\d+, .*{%k\d}", text)) == 2
    assert "vextract" not in text


def test_last_lane_of_equal_places_wins(native):
    A, B = Buffer("A", (24,)), Buffer("B", (8,))
    body = loop("i", 24, lambda i: store(B, i // 3, A[i]), "vectorized")
    native.check(PrimFunc("kernel", (A, B), body), np.arange(24, dtype="float32"), np.zeros(8, "float32"))


def test_comparisons_of_known_lanes(native):
    A, B = Buffer("A", (30,)), Buffer("B", (30,), "int64")

    def element(i):
        return select((i % 4 < 2) & (i // 2 > 3), 1, select(A[i] > 0.0, 2, 3))

    body = loop("i", 30, lambda i: store(B, i, element(i)), "vectorized")
    native.check(PrimFunc("kernel", (A, B), body), np.linspace(-1, 1, 30, dtype="float32"), np.zeros(30, "int64"))


def test_elements_of_two_vectors_are_one_shuffle():
    """As in each step of a square that is turned in registers."""
    A, B = Buffer("A", (256,)), Buffer("B", (256,))
    steps, tiles = turned_tile(16, "float32", lambda r, lane: A[r * 16 + lane])
    out = loop("r", 16, lambda r: loop("i", 16, lambda i: store(B, r * 16 + i, tiles[-1][r * 16 + i]), "vectorized"))
    body = seq(steps, out)
    for tile in reversed(tiles):
        body = Allocate(tile, body)
    text = emit_module([PrimFunc("kernel", (A, B), body)], Target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4"))
    assert text.count("shufflevector") == 4 * 16
