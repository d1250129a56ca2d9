"""Bits follow shapes and the width of vectors: machines that differ in their caches alone take the terms of each sum in
the same order."""

from __future__ import annotations

import dataclasses
import itertools
import random

import numpy as np
import pytest

from pullback import te
from pullback.schedule.choose import recognize
from pullback.schedule.contraction import Contraction
from pullback.schedule.contraction.plan.choice import blocking_of
from pullback.schedule.contraction.plan.tails import split_tails
from pullback.schedule.contraction.plan.task_order import have_same_order
from pullback.schedule.contraction.problem.problem import Problem
from pullback.schedule.group import Group, Machine
from pullback.schedule.winograd import Winograd
from pullback.target import Target
from tests.schedule.native import natively
from tests.schedule.test_contraction import product
from tests.schedule.test_schedules import group_of

CACHES = [(256 << 10, 4 << 20), (512 << 10, 8 << 20), (1 << 20, 16 << 20), (2 << 20, 4 << 20), (8 << 20, 64 << 20)]
HOST = Machine(Target("llvm").vector_bytes, Target("llvm").registers)


def on(machine: Machine) -> list[Machine]:
    return [dataclasses.replace(machine, second_bytes=second, cached_bytes=last) for second, last in CACHES]


def matmul(batch: tuple[int, ...], m: int, n: int, depth: int, across: bool) -> te.Tensor:
    a = te.placeholder((*batch, depth, m) if across else (*batch, m, depth), name="a")
    b, k = te.placeholder((*batch, depth, n), name="b"), te.reduce_axis(depth)

    def element(*i):
        *outer, r, c = i
        return te.sum((a[(*outer, k.var, r)] if across else a[(*outer, r, k.var)]) * b[(*outer, k.var, c)], k)

    return te.compute((*batch, m, n), element, "product")


def contractions() -> list[te.Tensor]:
    draw = random.Random(0)
    found = [
        product("weight", (64, 8, 33, 33, 16, 3, 1, 1), True),
        product("weight", (64, 16, 33, 33, 8, 3, 1, 1), True),
        product("weight", (8, 19, 7, 7, 33, 3, 1, 1), False),
        product("weight", (64, 32, 14, 14, 64, 3, 2, 1), False),
        product("data", (8, 19, 7, 7, 16, 5, 1, 1), False),
        product("forward", (8, 3, 40, 40, 16, 5, 1, 1), False),
        product("forward", (16, 19, 20, 20, 4, 3, 1, 1), True),
        matmul((), 8, 2048, 4096, False), matmul((), 64, 64, 70_000, True), matmul((16,), 24, 400, 800, False),
    ]  # fmt: skip
    for _ in range(12):
        size, kernel = draw.choice([7, 14, 20, 33]), draw.choice([1, 3, 5])
        shape = (draw.choice([8, 16, 64]), draw.choice([3, 8, 19, 32]), size, size, draw.choice([4, 8, 16, 33]))
        shape = (*shape, kernel, draw.choice([1, 2]), kernel // 2)
        found.append(product(draw.choice(["forward", "data", "weight"]), shape, draw.random() < 0.5))
    for _ in range(8):
        sizes = [draw.choice([1, 3, 17, 64, 300, 2000]) for _ in range(3)]
        found.append(matmul(draw.choice([(), (3,)]), *sizes, draw.random() < 0.5))
    return found


CONTRACTIONS = contractions()


def own_choice(group: Group) -> list:
    """How the machine would cut it up by itself."""
    problem = Problem.of(group.oriented)
    assert problem is not None
    return [split_tails(p) if blocking_of(p) is not None else [] for p in Contraction(group, problem).phases]


def test_contractions_sum_in_one_order_whatever_the_caches() -> None:
    moved = 0
    for machine, output in itertools.product((Machine(64, 32), Machine(32, 16), Machine(16, 32)), CONTRACTIONS):
        groups = [group_of(output, machine=m) for m in on(machine)]
        schedules = [recognize(group) for group in groups]
        assert len({type(s) for s in schedules}) == 1
        first = schedules[0]
        if isinstance(first, Winograd):
            numbers = {(s.filter.chunks, s.filter.rounds, tuple(s.filter.blocks.values())) for s in schedules}
            assert len(numbers) == 1 and all(have_same_order(first.rest, s.rest) or not s.rest for s in schedules)
        elif isinstance(first, Contraction):
            assert all(have_same_order(first.parts, s.parts) for s in schedules)
            choices = [own_choice(group) for group in groups]
            moved += not all(map(have_same_order, choices[0], choices[-1]))
    assert moved > 0  # else there was nothing to see


def test_an_order_is_another_one_where_parts_or_rounds_are() -> None:
    (part,) = recognize(group_of(CONTRACTIONS[8], machine=Machine(64, 32))).parts
    problem, blocking = part
    k = problem.reduced[-1]
    assert have_same_order([part], [part])
    other = blocking.revised(split_k=(blocking.split_k or 1) + 1)
    assert not have_same_order([part], [(problem, other)])
    if blocking.split_k is not None and blocking.split_k > 1:
        shorter = blocking.revised(inner={**blocking.inner, k: max(1, blocking.inner[k] // 2)})
        assert not have_same_order([part], [(problem, shorter)])
    whole = blocking.revised(split_k=None)
    k_blocked = whole.revised(inner={**blocking.inner, k: max(1, blocking.inner[k] // 2)})
    assert have_same_order([(problem, whole)], [(problem, k_blocked)])


def reductions() -> list[te.Tensor]:
    x = te.placeholder((600, 3000), name="x")
    k, r = te.reduce_axis(3000), te.reduce_axis(600)
    rows = te.compute((600,), lambda i: te.sum(x[i, k.var], k), "rows")
    columns = te.compute((3000,), lambda j: te.sum(x[r.var, j], r), "columns")
    centred = te.compute((600, 3000), lambda i, j: x[i, j] - rows[i] * (1 / 3000), "centred")
    return [rows, columns, centred]


NATIVE = {
    "gradient of weights": CONTRACTIONS[0],
    "few weights": CONTRACTIONS[2],
    "gradient of data": CONTRACTIONS[4],
    "convolution": CONTRACTIONS[5],
    "long sums": CONTRACTIONS[8],
    **{f"reduction {n}": output for n, output in enumerate(reductions())},
}


@pytest.mark.parametrize("name", NATIVE)
def test_bits_are_the_same_whatever_the_caches(name: str) -> None:
    output = NATIVE[name]
    results = []
    for machine in (on(HOST)[0], on(HOST)[1], on(HOST)[3]):
        group = group_of(output, machine=machine)
        draw = np.random.default_rng(1)
        feeds = {t: draw.standard_normal(t.shape, dtype=np.float32) for t in group.inputs}
        results.append([r.tobytes() for r in natively(group, feeds)])
    assert results[0] == results[1] == results[2]
