"""Other tiles and tasks of a contraction: each computes the same bits as the analytical choice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pullback.ir.errors import InternalError
from pullback.schedule.contraction import Contraction
from pullback.schedule.contraction.plan.alternatives import choice_of, chosen, other_tasks, other_tiles
from pullback.schedule.group import Group
from pullback.schedule.tuning import Choice, Choices
from pullback.tir import interpreter
from pullback.tir.workspace import lift_workspaces
from tests.schedule.test_contraction import product
from tests.schedule.test_schedules import SMALL, group_of, matmul

GROUPS = {
    "matmul": lambda: matmul(9, 11, 20),
    "matmul, transposed": lambda: matmul(9, 13, 30, True),
    "matmul in partial sums": lambda: matmul(2, 5, 1030),
    "convolution": lambda: product("forward", (2, 2, 6, 6, 5, 3, 1, 1), True),
    "convolution, by the data": lambda: product("data", (2, 2, 5, 5, 5, 3, 2, 1), True),
    "convolution, by the weight": lambda: product("weight", (2, 3, 5, 4, 5, 3, 1, 1), False),
}


def results(group: Group) -> list[bytes]:
    schedule = Contraction.recognize(group)
    assert schedule is not None
    kernel, workspaces = lift_workspaces(schedule.lower("kernel"))
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(t.shape).astype(t.dtype) for t in group.inputs]
    outputs = [np.full(t.shape, np.nan).astype(t.dtype) for t in group.outputs]
    scratch = [np.full(b.shape, np.nan).astype(b.dtype) for b in workspaces]
    arguments = zip([*inputs, *outputs, *scratch], kernel.buffers, strict=True)
    interpreter.run(kernel, [a.reshape(b.shape) for a, b in arguments])
    assert not any(np.isnan(o).any() for o in outputs)
    return [o.tobytes() for o in outputs]


def with_choice(group: Group, part: int, choice: Choice) -> Group:
    choices = Choices({Choices.key(group.digest, part): choice})
    return replace(group, machine=replace(group.machine, choices=choices))


@pytest.mark.parametrize("name", GROUPS)
def test_alternatives_give_the_same_bits(name):
    group = group_of(GROUPS[name](), machine=SMALL).oriented
    expected = results(group)
    tried = 0
    for part, (problem, blocking) in enumerate(Contraction.recognize(group).parts):
        found = [*other_tiles(problem, blocking, 2), *list(other_tasks(problem, blocking))[:1]]
        for choice in found:
            other = with_choice(group, part, choice)
            used = Contraction.recognize(other).parts[part]
            assert choice_of(*used) == choice != choice_of(problem, blocking)
            assert results(other) == expected
            tried += 1
    assert tried >= 2


def test_a_choice_is_found_by_what_the_group_computes():
    first, same, other = (group_of(matmul(*sizes)) for sizes in ((17, 19, 40), (17, 19, 40), (17, 19, 41)))
    assert first.digest == same.digest != other.digest
    ((problem, blocking),) = Contraction.recognize(first).parts
    choice = other_tiles(problem, blocking)[0]
    for group, finds in ((same, True), (other, False)):
        schedule = Contraction.recognize(replace(group, machine=with_choice(first, 0, choice).machine))
        assert (choice_of(*schedule.parts[0]) == choice) is finds


def test_a_choice_of_another_problem_is_refused():
    ((problem, blocking),) = Contraction.recognize(group_of(matmul(17, 19, 40))).parts
    own = choice_of(problem, blocking)
    assert chosen(problem, blocking, own).tile == blocking.tile
    for wrong in (
        replace(own, rows=()), replace(own, covers=(1,)), replace(own, covers=(99, 99)),
        replace(own, rows=((own.rows[0][0], 18),)),
    ):  # fmt: skip
        with pytest.raises(InternalError, match="does not fit the contraction matmul"):
            chosen(problem, blocking, wrong)
