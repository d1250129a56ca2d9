"""Counting what a kernel does: exactly, whatever its conditions and extents depend on."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.schedule.choose import lower
from pullback.schedule.group import Group
from pullback.te import compute, placeholder, reduce_axis
from pullback.te import sum as te_sum
from pullback.tir import Allocate, Buffer, If, PrimFunc, Var, call, fma, loop, maximum, minimum, seq, store
from pullback.tir.count import Count, count
from pullback.tir.workspace import lift_workspaces

A, B = Buffer("A", (10,)), Buffer("B", (10,))


def of(body, *params) -> Count | None:
    return count(PrimFunc("k", params or (A, B), body))


def test_arithmetic():
    body = loop("i", 10, lambda i: store(B, i, fma(A[i], A[i], A[i]) + call("exp", maximum(A[i], 0.0))))
    assert of(body) == Count(10 * (2 + 1 + 1 + 1), 40, 40)


def test_index_arithmetic_and_comparisons_are_free():
    assert of(loop("i", 5, lambda i: store(B, i * 2 + 1, A[9 - i]))) == Count(0, 20, 20)


def test_a_shared_expression_is_computed_once():
    def body(i):
        twice = A[i] * A[i]
        return store(B, i, twice + twice)

    assert of(loop("i", 10, body)) == Count(20, 40, 40)


@pytest.mark.parametrize("size", [1, 7, 10])
def test_conditions_and_extents_that_depend_on_loops(size):
    """Against running the same loops."""

    def body(i):
        one = store(B, i, A[i] + 1.0)
        many = loop("j", minimum(i, 4), lambda j: store(B, j, A[j] * 2.0 + 3.0))
        return If(i % 3 < 2, one, many)

    expected = sum(1 if i % 3 < 2 else 2 * min(i, 4) for i in range(size))
    assert of(loop("i", size, body)).flops == expected


def test_loops_that_depend_on_values_are_not_counted():
    sizes = Buffer("sizes", (1,), "int64")
    assert of(loop("i", sizes[0], lambda i: store(B, i, A[i] + 1.0)), A, B, sizes) is None
    assert of(loop("i", Var("n"), lambda i: store(B, i, A[i] + 1.0))) is None


def test_of_a_branch_that_depends_on_values_the_dearer_counts():
    body = loop("i", 10, lambda i: If((A[i] < 0.0), store(B, i, 0.0), store(B, i, A[i] * 2.0)))
    assert of(body).flops == 10


def test_scratch_memory_is_no_traffic():
    panels = Buffer("panels", (10,), "float32", "workspace")
    copy = loop("i", 10, lambda i: store(panels, i, A[i]))
    use = loop("i", 10, lambda i: store(B, i, panels[i] * 2.0))
    function, _ = lift_workspaces(PrimFunc("k", (A, B), Allocate(panels, seq(copy, use))))
    assert lift_workspaces(function) == (function, [])
    assert count(function) == Count(10, 40, 40)


@pytest.mark.parametrize(("m", "n", "k"), [(64, 128, 32), (13, 37, 5), (1, 3, 2), (9, 2, 4)])
def test_a_matmul_costs_what_it_says(m, n, k):
    """Whatever the tiles at its edges."""
    a, b, r = placeholder((m, k), "float32", "a"), placeholder((k, n), "float32", "b"), reduce_axis(k, "r")
    product = compute((m, n), lambda i, j: te_sum(a[i, r.var] * b[r.var, j], axis=r), "product")
    counted = count(lift_workspaces(lower(Group((a, b), (product,)), "matmul"))[0])
    assert counted == Count(2 * m * n * k, 4 * (m * k + k * n), 4 * m * n)
    assert isinstance(counted.flops, int) and not isinstance(counted.flops, np.integer)
