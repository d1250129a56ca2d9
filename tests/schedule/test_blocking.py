"""A finished blocking can't be changed, and what is derived from it is a draft again; the table has a column for each
kind of machine."""

from __future__ import annotations

import dataclasses

import pytest

from pullback.schedule.choose import recognize
from pullback.schedule.contraction.figures import figures_of
from pullback.schedule.contraction.plan.blocking import Blocking, Draft, Packing
from pullback.schedule.contraction.problem.problem import Problem
from pullback.schedule.group import Machine
from tests.schedule.test_schedules import group_of, matmul


def finished(machine: Machine) -> tuple[Problem, Blocking]:
    (part,) = recognize(group_of(matmul(96, 64, 80), machine=machine)).parts
    return part


@pytest.mark.parametrize("machine", [Machine(32, 16), Machine(64, 32)], ids=str)
def test_a_finished_blocking_is_immutable(machine: Machine) -> None:
    _, blocking = finished(machine)
    with pytest.raises(dataclasses.FrozenInstanceError):
        blocking.split_k = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        blocking.inner[blocking.column] = 1  # type: ignore[index]
    with pytest.raises(TypeError):
        blocking.packing[blocking.b] = Packing.REGION  # type: ignore[index]


def test_a_revised_blocking_is_a_draft() -> None:
    """What the finished one answers, such as the order of tasks, need not hold for it."""
    problem, blocking = finished(Machine(64, 32))
    inner = {**blocking.inner, problem.reduced[0]: 8}
    revised = blocking.revised(inner=inner)
    assert type(blocking) is Blocking and type(revised) is Draft
    assert revised.inner == inner and revised.packing == blocking.packing and revised.rows == blocking.rows


def test_orders_have_all_axes() -> None:
    problem, blocking = finished(Machine(64, 32))
    assert {*blocking.task_order} == {*blocking.tile_order} == {*problem.outputs}
    assert {*blocking.term_order} == {*problem.reduced}
    assert blocking.task_count >= 1 and blocking.round_count >= 1


def test_the_table_has_a_column_for_few_registers_and_one_for_many() -> None:
    few, many = figures_of(Machine(32, 16)), figures_of(Machine(64, 32))
    assert few.counts_tiles and not many.counts_tiles and few.transpose < many.transpose
    assert figures_of(Machine(16, 32)) == dataclasses.replace(many, l2_ways=few.l2_ways)
    assert many.l2_lines(1 << 16) == many.l2_ways and many.l2_lines(64) == many.l2_ways * many.l2_set // 64
