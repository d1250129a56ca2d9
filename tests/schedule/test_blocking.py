"""A finished blocking can't be changed, and what is derived from it is a draft again; the table has a column for each
kind of machine."""

from __future__ import annotations

import dataclasses

import pytest

from pullback.schedule.choose import recognize
from pullback.schedule.contraction.figures import blocking_figures
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
    assert blocking.task_count >= 1 and blocking.round_count >= 1


def test_moves_take_the_time_of_more_multiply_adds_where_vectors_are_wider() -> None:
    few, many = blocking_figures(Machine(32, 16)), blocking_figures(Machine(64, 32))
    assert (few.transpose, few.gather, many.transpose, many.gather) == (10, 32, 16, 64)
    assert dataclasses.replace(few, transpose=16, gather=64, l2_ways=many.l2_ways) == many
    assert many.l2_lines(1 << 16) == many.l2_ways and many.l2_lines(64) == many.l2_ways * many.l2_set // 64
