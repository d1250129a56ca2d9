"""What every task reads is copied by each thread for itself."""

from __future__ import annotations

import dataclasses

import pytest

from pullback import te
from pullback.codegen.own_copies import OwnCopies
from pullback.schedule.choose import lower
from pullback.schedule.group import Group, Machine
from pullback.tir import Allocate, Buffer, For, PrimFunc
from pullback.tir.in_place import may_share
from pullback.tir.visitor import walk
from tests.schedule.test_schedules import group_of, run


def turned_product(batch, m, n, depth):
    """``a`` times the transpose of ``b``, whose columns are turned before they are read."""
    a, b = te.placeholder((*batch, m, depth), name="a"), te.placeholder((*batch, n, depth), name="b")
    k = te.reduce_axis(depth)
    return te.compute(
        (*batch, m, n), lambda *at: te.sum(a[(*at[:-1], k.var)] * b[(*at[:-2], at[-1], k.var)], k), "product"
    )


LARGE = dataclasses.replace(Machine(), second_bytes=2 << 20)


def parallel_loops(kernel: PrimFunc) -> list[For]:
    return [n for n in walk(kernel.body) if isinstance(n, For) and n.kind == "parallel"]


def scopes(kernel: PrimFunc) -> dict[str, str]:
    return {n.buffer.name: n.buffer.scope for n in walk(kernel.body) if isinstance(n, Allocate)}


def copied_by_threads(group: Group) -> list[Buffer]:
    found = [OwnCopies.of(loop) for loop in parallel_loops(lower(group, "kernel"))]
    return [buffer for own in found if own is not None for buffer in own.buffers]


@pytest.mark.parametrize(
    ("m", "n", "depth", "second_bytes", "is_own"),
    [
        (300, 40, 100, 2 << 20, True),
        (300, 40, 100, 64 << 10, False),  # a copy for each thread would fill the second cache
        (300, 60, 600, 2 << 20, False),  # or is more than a stack should hold
        (8, 40, 10, 2 << 20, False),  # nothing to divide among threads
    ],
    ids=str,
)
def test_what_all_threads_read(m, n, depth, second_bytes, is_own):
    machine = dataclasses.replace(Machine(), second_bytes=second_bytes)
    group = group_of(turned_product((), m, n, depth), machine=machine)
    assert [b.name for b in copied_by_threads(group)] == (["panels"] if is_own else [])
    kernel = lower(group, "kernel")
    assert scopes(kernel).get("panels") == ("local" if is_own else "workspace")
    assert len(parallel_loops(kernel)) == (1 if is_own else 2 if m > 8 else 0)
    run(group)


def test_is_not_written_over_what_a_late_thread_still_copies():
    """A thread may begin when others have stored results already: these can't lie where it copies from."""
    a = te.placeholder((64, 64), name="a")
    k = te.reduce_axis(64)
    square = te.compute((64, 64), lambda i, j: te.sum(a[i, k.var] * a[j, k.var], k), "square")
    group = group_of(square, machine=LARGE)
    assert copied_by_threads(group)
    kernel = lower(group, "kernel")
    source, target = kernel.buffers
    assert not may_share(kernel, source, target)
    run(group)


def test_an_update_beside_own_copies_is_in_place():
    """What is read at the place of a result only."""
    x, dy, w = (te.placeholder(s, name=n) for s, n in (((300, 40), "x"), ((50, 40), "dy"), ((300, 50), "w")))
    k = te.reduce_axis(40)
    product = te.compute((300, 50), lambda i, j: te.sum(x[i, k.var] * dy[j, k.var], k), "product")
    group = group_of(te.compute((300, 50), lambda i, j: w[i, j] - product[i, j], "new"), machine=LARGE)
    assert copied_by_threads(group)
    kernel = lower(group, "kernel")
    weights = next(b for b in kernel.buffers if b.name == "w")
    assert may_share(kernel, weights, kernel.buffers[-1])
    run(group)
