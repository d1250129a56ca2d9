"""What a blocking costs: time relative to a perfect contraction, and in FMAs."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.schedule.contraction.plan.blocking import Draft, Packing
from pullback.schedule.contraction.plan.counts import copies
from pullback.schedule.contraction.plan.lane_sums import lane_cost
from pullback.schedule.contraction.plan.register_tiles import reads, store_cost
from pullback.schedule.contraction.plan.vector_axis import vector_axis_cost
from pullback.schedule.contraction.problem.memory import elements
from pullback.schedule.contraction.problem.problem import Problem
from pullback.schedule.tiles import slowness

Parts = Sequence[tuple[Problem, Draft]]


def cost(problem: Problem, draft: Draft) -> float:
    """Time relative to a perfect contraction: here it is known how often tasks pack the same elements."""
    if draft.lane_axis is not None:
        return lane_cost(problem, draft)
    store = store_cost(problem, draft.column, draft.rows)
    time = vector_axis_cost(problem, draft.column, store, copies(problem, draft.packing, draft.inner))
    if draft.packing[draft.a] is Packing.PANELS:
        time *= 1 + problem.figures.pack * elements(problem, draft.a) / problem.work
    registers = problem.group.machine.registers
    return time * slowness(draft.tile, problem.lanes, registers, reads(problem, draft.a, draft.tile.rows))


def time(parts: Parts) -> float:
    """FMAs in the time that contractions take one after the other."""
    loops = sum(problem.figures.parallel_loop for problem, _ in parts[1:])
    return sum(problem.work * cost(problem, draft) for problem, draft in parts) + loops
