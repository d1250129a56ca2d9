"""Contractions ask for memory before they read or write it."""

from __future__ import annotations

import numpy as np
import pytest

from pullback import te, tir
from pullback.schedule.choose import recognize
from pullback.schedule.contraction.emit import prefetch as ahead
from pullback.schedule.contraction.figures import Figures
from pullback.schedule.group import Machine
from pullback.tir import interpreter as tir_interpreter
from pullback.tir.visitor import walk
from tests.schedule.limits import limit
from tests.schedule.test_schedules import group_of, run


@pytest.mark.parametrize("rounds", [False, True])
@pytest.mark.parametrize(("m", "n"), [(16, 64), (13, 37)])
@pytest.mark.parametrize("terms", [24, 70])
def test_what_is_touched_after_the_sums_is_asked_for_before(m, n, terms, rounds, monkeypatch):
    """The result, and a matrix added to it, each line; not a small row, nor what lies across the columns. Among many
    terms the lines of one row after those of another, before them all that is left."""
    limit(monkeypatch, streamed=4 * n)
    if rounds:
        limit(monkeypatch, l2=1, k_block=Figures().k_block._replace(depth=terms // 2))
    a, b, axis = te.placeholder((m, terms), name="a"), te.placeholder((terms, n), name="b"), te.reduce_axis(terms)
    c, across = te.placeholder((m, n), name="c"), te.placeholder((n, m), name="across")
    row = te.placeholder((n,), name="row")
    sums = te.compute((m, n), lambda i, j: te.sum(a[i, axis.var] * b[axis.var, j], axis), "sums")
    group = group_of(te.compute((m, n), lambda i, j: sums[i, j] * c[i, j] + row[j] - across[j, i], "y"))
    asked: dict[str, set[tuple[int, ...]]] = {}

    def record(frame, node: tir.Prefetch) -> None:
        frame.expr(node.buffer[node.indices])  # an index out of bounds would be an error of a load
        i, j = (int(np.max(frame.expr(index))) for index in node.indices)
        asked.setdefault(node.buffer.name, set()).add((i, j // 16))

    monkeypatch.setattr(tir_interpreter._Frame, "stmt_prefetch", record)
    run(group)
    assert asked == {key: {(i, j // 16) for i in range(m) for j in range(n)} for key in ("y", "c")}
    loops = [n for n in walk(recognize(group).lower("kernel").body) if isinstance(n, tir.For)]
    parts = [p for p in loops if p.var.name == "part" and any(isinstance(n, tir.Prefetch) for n in walk(p))]
    assert bool(parts) == (terms == 70)


@pytest.mark.parametrize(("first", "registers", "asks"), [(0, 32, True), (1 << 20, 32, False), (0, 16, False)])
@pytest.mark.parametrize("left", [False, True])
def test_columns_from_a_farther_cache_are_asked_for_some_terms_before(first, registers, asks, left, monkeypatch):
    """Each line of them, but those of the first terms, and the last column, as rows begin within lines; in places that
    exist."""
    m, k, n = 13, 20, 127
    limit(monkeypatch, l1=first)
    a, b = te.placeholder((k, m) if left else (m, k), name="a"), te.placeholder((k, n), name="b")
    axis, asked = te.reduce_axis(k), set()

    def record(frame, node: tir.Prefetch) -> None:
        frame.expr(node.buffer[node.indices])  # an index out of bounds would be an error of a load
        if node.buffer.name == "b":
            asked.add(tuple(int(np.max(frame.expr(index))) for index in node.indices))

    monkeypatch.setattr(tir_interpreter._Frame, "stmt_prefetch", record)
    product = te.compute(
        (m, n), lambda i, j: te.sum((a[axis.var, i] if left else a[i, axis.var]) * b[axis.var, j], axis)
    )
    run(group_of(product, machine=Machine(64, registers)))
    wanted = {(i, j) for i in range(ahead.TERMS_AHEAD, k) for j in (*range(0, n, 16), n - 1)}
    assert asked >= wanted if asks else not asked
