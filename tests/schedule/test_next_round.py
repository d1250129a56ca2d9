"""What the next round copies is asked for while this one multiplies."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest

from pullback import te
from pullback.schedule.choose import recognize
from pullback.schedule.contraction.emit import round_copy
from pullback.schedule.contraction.emit.prefetch import following
from pullback.schedule.contraction.figures import KBlock
from pullback.schedule.contraction.plan.blocking import Packing
from pullback.schedule.contraction.plan.counts import part_count
from pullback.schedule.group import Machine
from pullback.tir import Prefetch, Var, interpreter
from tests.schedule.limits import limit
from tests.schedule.test_schedules import SMALL, group_of, run

LINE = 16  # elements


def product(batch: int, m: int, n: int, depth: int, across: bool) -> te.Tensor:
    """A batch of a · b; ``across``: the lines of b lie along the terms."""
    a, k = te.placeholder((batch, m, depth), name="a"), te.reduce_axis(depth)
    b = te.placeholder((batch, n, depth) if across else (batch, depth, n), name="b")

    def term(i, y, x):
        return a[i, y, k.var] * (b[i, x, k.var] if across else b[i, k.var, x])

    return te.compute((batch, m, n), lambda i, y, x: te.sum(term(i, y, x), k), "product")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The elements of ``b`` that are asked for to be read, in order, those behind its end as well."""
    elements: list[int] = []

    def record(frame: interpreter._Frame, node: Prefetch) -> None:
        if node.buffer.name != "b" or node.kind != "read":
            return
        flat = np.zeros(frame.shape, np.int64)
        for index, size in zip(node.indices, node.buffer.shape, strict=True):
            flat = flat * size + np.broadcast_to(frame.expr(index), frame.shape)
        elements.extend(flat[np.broadcast_to(True if frame.mask is None else frame.mask, frame.shape)].tolist())

    monkeypatch.setattr(interpreter._Frame, "stmt_prefetch", record)
    return elements


@pytest.mark.parametrize(
    ("sizes", "across", "way"),
    [
        ((3, 27, 64, 40), False, Packing.ROUND),
        ((3, 27, 45, 37), False, Packing.ROUND),
        ((3, 27, 45, 37), True, Packing.REGION),
    ],
    ids=str,
)
def test_all_lines_but_those_of_the_first_round(sizes, across, way, monkeypatch, asked):
    """A few times each for every time that they are copied, and few in vain: pieces of lines do not end where lines do,
    nor matrices with a round."""
    monkeypatch.setattr(round_copy, "_AHEAD", 1 << 30)
    limit(monkeypatch, TASKS=4, _APART=64, _RUN=4, packed_k_block=KBlock(depth=10, columns=1280, rows=800, sums=4096))
    batch, _, n, depth = sizes
    group = group_of(product(*sizes, across), machine=dataclasses.replace(SMALL, second_bytes=16 << 10))
    ((problem, blocking),) = recognize(group).parts
    (b,) = (f for f in blocking.packing if f.source.name == "b")
    assert blocking.packing[b] == way
    run(group)
    count = batch * n * depth
    lines = {e // LINE for e in asked if 0 <= e < count}
    first = math.prod(blocking.inner[v] for v in b.axes)
    assert len(lines) * LINE >= count - first - LINE * n
    assert len([e for e in asked if not 0 <= e < count]) * LINE <= 4 * first + LINE * n
    assert len(asked) * LINE <= 4 * first * part_count(problem, blocking.inner)


def test_matrices_that_stay_near_and_images_are_not_asked_for(asked):
    near = dataclasses.replace(SMALL, second_bytes=1 << 20)
    run(group_of(product(3, 27, 45, 37, False), machine=near))
    assert not asked
    x, w = te.placeholder((2, 5, 12, 13), name="b"), te.placeholder((7, 5, 3, 3), name="w")
    c, i, j = te.reduce_axis(5), te.reduce_axis(3), te.reduce_axis(3)
    image = te.compute(
        (2, 7, 10, 11),
        lambda n, o, y, z: te.sum(x[n, c.var, y + i.var, z + j.var] * w[o, c.var, i.var, j.var], (c, i, j)),
        "image",
    )
    run(group_of(image, machine=Machine(SMALL.vector_bytes, SMALL.registers, second_bytes=0)))
    assert not asked


def test_points_follow_in_row_major_order():
    axes, sizes = [Var("i"), Var("j"), Var("k")], [3, 2, 4]
    points = list(np.ndindex(*sizes))
    for point, after in itertools.pairwise(points):
        values = {v: np.int64(x) for v, x in zip(axes, point, strict=True)}
        assert tuple(int(interpreter.evaluate(e, values)) for e in following(axes, sizes).values()) == after[::-1]
