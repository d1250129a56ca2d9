"""The choice of the schedule that lowers a group: each either recognizes it or declines."""

from __future__ import annotations

from typing import Any

from pullback.ir.errors import InternalError
from pullback.schedule.attention import AttentionBackward, AttentionForward
from pullback.schedule.contraction import Contraction
from pullback.schedule.elementwise import Elementwise
from pullback.schedule.group import LONGEST_ELEMENT, Group
from pullback.schedule.random import Random
from pullback.schedule.reduction import Reduction
from pullback.schedule.scatter import Scatter
from pullback.schedule.winograd import Winograd
from pullback.te.random import draws
from pullback.tir import PrimFunc
from pullback.tir.description import SCHEDULE

Schedule = AttentionForward | AttentionBackward | Random | Elementwise | Scatter | Winograd | Contraction | Reduction
SCHEDULES: tuple[type[Any], ...] = (
    AttentionForward, AttentionBackward, Random, Elementwise, Scatter, Winograd, Contraction, Reduction,
)  # fmt: skip


def recognize(group: Group) -> Schedule | None:
    """The schedule for the group, the most particular first, or None when it is no single kernel."""
    group = group.oriented
    return next((s for s in (kind.recognize(group) for kind in _asked(group)) if s is not None), None)


def is_one_kernel(group: Group) -> bool:
    """Whether there is a schedule for the group. Filters are contractions, too: which is faster is not asked."""
    group = group.oriented
    if group.longest_element > LONGEST_ELEMENT and len(group.stages) > 1 and not group.fallback:
        return False
    asked = _asked(group)
    return any(kind.recognize(group) is not None for kind in asked if kind is not Winograd or Contraction not in asked)


def _asked(group: Group) -> list[type[Any]]:
    """The schedules for the group, the most particular first. Those that the machine is told to do without decline,
    unless nothing else can compute the group; and so do all but one for a group that draws random numbers."""
    fitting = (Random,) if any(map(draws, group.stages)) and not group.fallback else SCHEDULES
    asked = [kind for kind in fitting if kind.__name__ not in group.machine.without]
    return asked + [kind for kind in SCHEDULES if kind not in asked and group.fallback]


def scheduled(group: Group) -> Schedule:
    """The schedule of a group that :func:`recognize` accepts."""
    schedule = recognize(group)
    if schedule is None:
        listed = ", ".join(s.name for s in group.stages)
        raise InternalError(f"no schedule for the group {listed}")
    return schedule


def lower(group: Group, name: str) -> PrimFunc:
    """The kernel of such a group."""
    return lowered(scheduled(group), name)


def lowered(schedule: Schedule, name: str) -> PrimFunc:
    """The kernel of a schedule, which says in its attribute ``schedule`` what was chosen for it."""
    function, description = schedule.lower(name), schedule.describe()
    if description is None:
        return function
    return PrimFunc(name, function.params, function.body, {**function.attrs, SCHEDULE: description})
