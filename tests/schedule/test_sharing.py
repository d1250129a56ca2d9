"""Contractions are cut up so that threads read the copies that they made."""

from __future__ import annotations

import dataclasses

import pytest

from pullback import te
from pullback.schedule.choose import recognize
from pullback.schedule.contraction.plan.blocking import Packing
from pullback.schedule.contraction.plan.counts import tasks_of_rows
from pullback.schedule.contraction.plan.task_order import is_by_rows
from pullback.schedule.group import Machine
from tests.schedule.limits import limit
from tests.schedule.test_contraction import product
from tests.schedule.test_schedules import SMALL, group_of, run


def turned_product(batch, m, n, depth):
    """``a`` times the transpose of ``b``, whose columns are turned before they are read."""
    a, b = te.placeholder((*batch, m, depth), name="a"), te.placeholder((*batch, n, depth), name="b")
    k = te.reduce_axis(depth)
    return te.compute(
        (*batch, m, n), lambda *at: te.sum(a[(*at[:-1], k.var)] * b[(*at[:-2], at[-1], k.var)], k), "product"
    )


@pytest.mark.parametrize(
    ("batch", "m", "n", "depth", "is_own"),
    [
        ((16,), 5, 37, 11, True),
        ((4, 3), 40, 132, 9, True),  # in each product of the batch, several tasks have all rows
        ((), 9, 310, 12, True),
        ((2,), 50, 36, 9, True),  # few tasks, as they are short
        ((), 70, 40, 900, False),  # too few tasks, if each had all rows
        ((16,), 50, 37, 11, False),  # rows leave the second cache
    ],
    ids=str,
)
def test_tasks_copy_columns_that_no_other_one_reads(batch, m, n, depth, is_own):
    group = group_of(turned_product(batch, m, n, depth), machine=dataclasses.replace(SMALL, second_bytes=4000))
    ((problem, blocking),) = recognize(group).parts
    assert blocking.packing[blocking.b] == (Packing.REGION if is_own else Packing.PANELS)
    if is_own:
        assert tasks_of_rows(problem, blocking.b, blocking.inner) == 1
    run(group)


@pytest.mark.parametrize(
    ("m", "n", "depth", "by_rows"),
    [
        (128, 128, 64, False),  # a thread reads the columns that it copied
        (128, 128, 200, False),  # in rounds, too
        (90, 128, 250, False),  # fewer lines are shared, one in each row, than are copied
        (413, 102, 25, True),  # more are
    ],
)
def test_threads_divide_columns_that_they_copied(m, n, depth, by_rows):
    group = group_of(turned_product((), m, n, depth), machine=Machine())
    ((problem, blocking),) = recognize(group).parts
    assert blocking.packing[blocking.b] == Packing.PANELS
    assert is_by_rows(problem, blocking) == by_rows
    assert by_rows or blocking.inner[blocking.column] < n
    run(group)


@pytest.mark.parametrize(
    ("kind", "shape", "chunks"),
    [
        ("weight", (2, 6, 49, 22, 16, 3, 1, 0), 8),  # each task reads the part of dy that its thread turned
        ("weight", (2, 16, 19, 22, 160, 3, 1, 0), None),  # threads divide the columns
        ("forward", (1, 46, 31, 10, 6, 7, 1, 3), 8),
        ("forward", (17, 92, 11, 11, 14, 7, 1, 0), None),  # x would pass again and again, for some taps each time
        ("weight", (1, 2, 9, 9, 16, 3, 1, 0), None),  # one thread does it all
    ],
    ids=str,
)
def test_sums_are_divided_where_threads_would_read_what_others_copied(kind, shape, chunks, monkeypatch):
    limit(monkeypatch, _TAPS=0.0)
    machine = Machine(vector_bytes=64, registers=32, without=("Winograd",))
    group = group_of(product(kind, shape, False), machine=machine)
    ((_, blocking),) = recognize(group).parts
    assert {Packing.PANELS, Packing.TRANSPOSED} & {*blocking.packing.values()}
    assert blocking.split_k == chunks
