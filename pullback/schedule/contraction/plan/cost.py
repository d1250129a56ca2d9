"""How much more time the register tiles of a blocking take than those that keep the units busy."""

from __future__ import annotations

from dataclasses import replace

from pullback.schedule.contraction.plan.blocking import Draft
from pullback.schedule.contraction.plan.register_tiles import reads
from pullback.schedule.contraction.problem.problem import Problem
from pullback.schedule.tiles import slowness


def tile_slowness(problem: Problem, blocking: Draft) -> float:
    """The time of a tile relative to a perfect one; sums in lanes have a cost of their own. What goes on from row to
    row or from tap to tap reads a window, of whatever kind; large tiles of other columns are as those of matrices."""
    machine, goes_on = problem.group.machine, blocking.run is not None or blocking.taps is not None
    found = reads(problem, blocking.a, blocking.tile.rows, machine)
    if goes_on:
        found = replace(found, near=True)
    elif not found.near and not problem.figures.counts_tiles:
        found = replace(found, plain=True)
    return slowness(blocking.tile, problem.lanes, machine.registers, found)


def uncounted(problem: Problem, blocking: Draft) -> float:
    """Likewise, where the blocking's cost does not count it: those of large tiles, which are mostly fast, do not."""
    is_counted = problem.figures.counts_tiles or blocking.lane_axis is not None
    return 1.0 if is_counted else tile_slowness(problem, blocking)
