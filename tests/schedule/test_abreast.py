"""The parts of a contraction are one loop over tasks, where they have about as many."""

from __future__ import annotations

import dataclasses

import pytest

from pullback import tir
from pullback.schedule.choose import lower
from pullback.schedule.contraction.emit import side_by_side
from pullback.schedule.contraction.plan import finish
from pullback.schedule.contraction.plan.counts import task_count
from pullback.schedule.group import Group, Machine
from pullback.tir.visitor import walk
from tests.schedule.test_across import check_natively
from tests.schedule.test_contraction import product
from tests.schedule.test_lane_sums import parts_of
from tests.schedule.test_schedules import SMALL, group_of, run

SHAPES = [  # N, C, H, W, O, kernel, stride, padding
    (4, 5, 9, 12, 6, 3, 2, 1), (3, 7, 8, 11, 5, 4, 2, 1), (2, 5, 10, 9, 6, 5, 3, 2), (3, 6, 9, 9, 5, 1, 2, 0),
    (3, 6, 7, 13, 5, 2, 3, 0),
]  # fmt: skip


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small problems are worth them, too."""
    monkeypatch.setattr(finish, "worth_threads", lambda nanoseconds: True)


def gradient(shape: tuple[int, ...], machine: Machine = SMALL) -> Group:
    return group_of(product("data", shape, False), machine=dataclasses.replace(machine, without=("Winograd",)))


def parallel_loops(group: Group) -> list[tir.For]:
    body = lower(group, "kernel").body
    return [n for n in walk(body) if isinstance(n, tir.For) and n.kind == "parallel"]


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("machine", [SMALL, Machine()], ids=["small", "large"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_phases_of_a_strided_gradient(shape: tuple[int, ...], machine: Machine) -> None:
    """Also with fewer tasks in some of them, or no terms."""
    group = gradient(shape, machine)
    assert len(parts_of(group)) > 1
    run(group)
    check_natively(group)


@pytest.mark.usefixtures("threads")
def test_they_are_begun_together() -> None:
    group = gradient((4, 5, 9, 12, 6, 3, 2, 1), Machine())
    (loop,) = parallel_loops(group)
    (each,) = {task_count(problem, blocking.inner) for problem, blocking in parts_of(group)}
    assert len(parts_of(group)) == 4 and each > 1 and loop.extent.value == 4 * each


@pytest.mark.usefixtures("threads")
def test_loops_of_uneven_numbers_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread would skip most of its turns."""
    together = len(parallel_loops(gradient((4, 5, 9, 12, 6, 3, 2, 1), Machine())))
    monkeypatch.setattr(side_by_side, "_UNEVEN", 0)
    apart = len(parallel_loops(gradient((4, 5, 9, 12, 6, 3, 2, 1), Machine())))
    assert (together, apart) == (1, 4)


def test_threads_are_worth_their_while_for_all_parts_together(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(finish, "worth_threads", lambda nanoseconds: bool(asked.append(nanoseconds)))
    group = gradient((4, 5, 9, 12, 6, 3, 2, 1), Machine())
    expected = sum(problem.nanoseconds for problem, _ in parts_of(group))
    asked.clear()
    assert parallel_loops(group) == []
    assert asked == [pytest.approx(expected)]
