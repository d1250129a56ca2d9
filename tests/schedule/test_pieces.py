"""Pieces: the innermost axis is cut where conditions on it change, and what a piece reads lies side by side."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pullback import te, tir
from pullback.schedule.elementwise import Elementwise
from pullback.schedule.pieces import pieces
from pullback.tir import Buffer, For, Var, as_expr, select, seq, store
from pullback.tir import interpreter as tir_interpreter
from pullback.tir.stmt import BufferStore, PrimFunc
from pullback.tir.visitor import walk
from tests.schedule.native import natively
from tests.schedule.test_schedules import group_of, run

CONDITIONS = {
    "<": lambda v, k: v < k, "<=": lambda v, k: v <= k, ">": lambda v, k: v > k, ">=": lambda v, k: v >= k,
    "==": lambda v, k: v.equal(k), "!=": lambda v, k: v.not_equal(k),
}  # fmt: skip


SIDES = {
    "j ? bound": lambda j, bound: (j, as_expr(bound)),
    "bound ? j": lambda j, bound: (as_expr(bound), j),
    "bound - j ? 0": lambda j, bound: (bound - j, as_expr(0)),
}


@pytest.mark.parametrize("kind", CONDITIONS)
@pytest.mark.parametrize("sides", SIDES)
def test_a_cut_is_where_a_condition_changes(kind, sides):
    """Every bound inside of 7 elements, at its ends and outside: no condition is left, and the values are the same."""
    for bound in range(-2, 10):
        j, out = Var("j"), Buffer("out", (7,))
        whole = store(out, (j,), select(CONDITIONS[kind](*SIDES[sides](j, bound)), 1.0, 2.0))
        parts = pieces([j], [7], whole)
        assert sum(extent for extent, _ in parts) == 7
        results = []
        for body in (For(j, as_expr(7), whole), seq(*(For(j, as_expr(extent), part) for extent, part in parts))):
            result = np.zeros(7, np.float32)
            tir_interpreter.run(PrimFunc("kernel", (out,), body), [result])
            results.append(result)
        np.testing.assert_array_equal(*results)
        changes = np.flatnonzero(np.diff(results[0]))
        assert [extent for extent, _ in parts] == list(np.diff([0, *(changes + 1), 7]))
        assert len(parts) == 1 or not any(isinstance(n, tir.Select) for _, part in parts for n in walk(part))


def concatenation(sizes: list[int], rows: int | None = None) -> te.Tensor:
    """Along the last axis, each part read at an index that is valid everywhere."""
    lead = () if rows is None else (rows,)
    parts = [te.placeholder((*lead, n), name=f"part{k}") for k, n in enumerate(sizes)]
    ends = list(itertools.accumulate(sizes))

    def element(*at):
        *outer, j = at
        value = None
        for part, size, end in reversed(list(zip(parts, sizes, ends, strict=True))):
            place = tir.maximum(tir.minimum(j - (end - size), size - 1), 0)
            value = part[(*outer, place)] if value is None else select(j < end, part[(*outer, place)], value)
        return value

    return te.compute((*lead, sum(sizes)), element, "joined")


@pytest.mark.parametrize("sizes", [[3, 5], [1, 1, 1], [17, 2, 8, 33], [1] * 40])
@pytest.mark.parametrize("rows", [None, 1, 5])
def test_concatenation(sizes, rows):
    joined = concatenation(sizes, rows)
    run(group_of(joined))
    run(group_of(te.compute(joined.shape, lambda *i: joined[i] * 2.0 + 1.0, "scaled")))


def test_a_long_concatenation_is_divided_among_tasks():
    joined = concatenation([70_000, 30_001])
    group = group_of(joined)
    feeds = {t: np.arange(t.shape[0], dtype=np.float32) for t in group.inputs}
    (result,) = natively(group, feeds)
    np.testing.assert_array_equal(result, np.concatenate(list(feeds.values())))


@pytest.mark.parametrize(("before", "after"), [(1, 1), (0, 3), (4, 0)])
def test_padding(before, after):
    x = te.placeholder((3, 6), name="x")

    def element(i, j):
        row, column = (tir.maximum(tir.minimum(v, end), 0) for v, end in ((i - 1, 2), (j - before, 5)))
        inside = (i >= 1) & (i < 4) & (j >= before) & (j < before + 6)
        return select(inside, x[row, column], -1.0)

    run(group_of(te.compute((5, 6 + before + after), element, "padded")))


def test_conditions_that_are_no_bound_of_the_axis_stay():
    x = te.placeholder((9, 9), name="x")
    run(group_of(te.compute((9, 9), lambda i, j: select(i <= j, x[i, j], 0.0), "triangle")))
    run(group_of(te.compute((9, 9), lambda i, j: select((j % 2).equal(0), x[i, j], 0.0), "stripes")))
    run(group_of(te.compute((9, 9), lambda i, j: select((2 * j < 7) | (x[i, j] > 0), x[i, j], 0.0), "half")))


def taken(size: int, index) -> te.Tensor:
    """Elements of rows of 11, at ``index(j)`` made valid."""
    x = te.placeholder((3, 11), name="x")
    return te.compute((3, size), lambda i, j: x[i, tir.maximum(tir.minimum(index(j), 10), 0)], "taken")


INDICES = {
    "few windows": (44, lambda j: j * 3 // 44, 3),
    "no multiples": (45, lambda j: (j * 4 + 3) // 45, 4),
    "both edges": (40, lambda j: (j * 22 - 30) // 60, 3),
    "backwards": (40, lambda j: 30 - j, 3),
    "a quotient that changes all the time": (40, lambda j: j // 4, 1),
    "pieces that would be short": (15, lambda j: j - 2, 1),
}


@pytest.mark.parametrize("name", INDICES)
def test_a_cut_is_where_an_index_follows_another_rule(name):
    """Each piece is valid without being made so, and a quotient of few values is a number there."""
    size, index, count = INDICES[name]
    j, out, x = Var("j"), Buffer("out", (size,)), Buffer("x", (11,))
    whole = store(out, (j,), x[tir.maximum(tir.minimum(index(j), 10), 0)])
    parts = pieces([j], [size], whole)
    assert len(parts) == count
    if count > 1:
        kinds = {n.kind for _, part in parts for n in walk(part) if isinstance(n, tir.Binary)}
        assert not kinds & {"min", "max"}
        assert ("floordiv" in kinds) == (name == "both edges")
    run(group_of(taken(size, index)))


def test_an_index_that_depends_on_more_than_the_axis_stays():
    x = te.placeholder((5, 40), name="x")
    run(group_of(te.compute((5, 40), lambda i, j: x[i, tir.minimum(i * 9 + j, 39)], "shifted")))
    run(group_of(te.compute((5, 40), lambda i, j: x[(i * 40 + j) * 5 // 200, j], "divided")))


@pytest.mark.parametrize("count", [9, 40, 100])
def test_a_long_concatenation_has_a_piece_for_each_part(count):
    """Each reads one part, side by side; halving comes to the same as cutting at once."""
    sizes = [1 + 3 * k % 5 for k in range(count)]
    concat = concatenation(sizes, rows=2)
    function = Elementwise.recognize(group_of(concat)).lower("concat")
    stores = [n for n in walk(function.body) if isinstance(n, BufferStore)]
    assert len(stores) == count and not any(isinstance(n, tir.Select) for n in walk(function.body))
    inputs = [np.random.default_rng(k).standard_normal((2, n)).astype(np.float32) for k, n in enumerate(sizes)]
    result = np.zeros((2, sum(sizes)), np.float32)
    tir_interpreter.run(function, [*inputs, result])
    np.testing.assert_array_equal(result, np.concatenate(inputs, 1))
