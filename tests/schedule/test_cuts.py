"""Axes that are cut where their last vector would have few lanes: what is cut, and that both parts are right."""

from __future__ import annotations

import dataclasses

import pytest

from pullback import te
from pullback.schedule.choose import lower, recognize
from pullback.schedule.contraction.plan import tails
from pullback.schedule.group import Machine
from pullback.tir.in_place import may_share
from tests.schedule.limits import limit
from tests.schedule.test_contraction import UNFILTERED, product, turned
from tests.schedule.test_schedules import group_of, run

WIDE = Machine(vector_bytes=64, registers=32, without=("Winograd",))


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every axis is cut that can be."""
    monkeypatch.setattr(tails, "_WASTES", (0.0, 0.0))
    limit(monkeypatch, parallel_loop=0)
    monkeypatch.setattr(tails, "_BETTER", (1000.0, 1000.0))


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("kind", ["forward", "data", "weight"])
@pytest.mark.parametrize(
    "shape", [(2, 5, 7, 6, 9, 3, 1, 1), (3, 6, 9, 9, 5, 3, 2, 1), (2, 9, 5, 8, 6, 2, 1, 0), (9, 2, 6, 5, 5, 1, 1, 0)],
    ids=str,
)  # fmt: skip
def test_convolutions_in_parts(shape, kind, channels_last):
    group = group_of(product(kind, shape, channels_last), machine=UNFILTERED)
    parts = recognize(group).parts
    assert len(parts) > 1
    assert sum(problem.work for problem, _ in parts) == sum(p.work for p, _ in recognize(uncut(group)).parts)
    run(group)


def uncut(group):
    """The same group, of which nothing is known, with lanes that divide no axis into whole vectors and a rest."""
    return dataclasses.replace(group, machine=dataclasses.replace(group.machine, vector_bytes=1 << 12))


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("channels_last", [False, True])
def test_work_on_the_results_of_all_parts(channels_last):
    y = product("forward", (2, 3, 7, 6, 9, 3, 1, 1), False)
    bias = te.placeholder((9,), name="bias")
    total = te.compute(y.shape, lambda n, c, h, w: y[n, c, h, w] * 2.0 + bias[c], "total")
    group = group_of(turned(total, channels_last), turned(y, channels_last), machine=UNFILTERED)
    assert len(recognize(group).parts) > 1
    run(group)


@pytest.mark.parametrize(
    ("channels", "sizes"), [(16, [16]), (17, [16, 1]), (20, [16, 4]), (28, [28]), (33, [32, 1])], ids=str
)
def test_what_fills_few_lanes_is_a_part_of_its_own(channels, sizes):
    """One channel more than a vector has would take twice the time; vectors along the image's rows of 10, 1.6 of it."""
    parts = recognize(group_of(product("forward", (64, 6, 14, 14, channels, 5, 1, 0), False), machine=WIDE)).parts
    found = [next(problem.extents[v] for v in problem.outputs if v.name == "i1") for problem, _ in parts]
    assert found == sizes


def test_a_small_contraction_is_not_cut():
    """A second loop would take longer than it saves."""
    assert len(recognize(group_of(product("forward", (1, 3, 14, 14, 17, 5, 1, 0), False), machine=WIDE)).parts) == 1


@pytest.mark.usefixtures("eager")
def test_weights_are_updated_in_place_all_the_same():
    gradient = product("weight", (2, 3, 9, 8, 9, 3, 1, 1), False)
    w = te.placeholder(gradient.shape, name="old")
    group = group_of(te.compute(w.shape, lambda *i: w[i] - gradient[i] * 0.1, "new"), machine=UNFILTERED)
    assert len(recognize(group).parts) > 1
    kernel = lower(group, "kernel")
    assert may_share(kernel, kernel.params[[p.name for p in kernel.params].index("old")], kernel.params[-1])
