"""What a blocking costs: time relative to a perfect contraction, and in FMAs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from pullback.schedule.contraction.plan.blocking import Draft, Packing
from pullback.schedule.contraction.plan.counts import copies, partial_bytes, round_count
from pullback.schedule.contraction.plan.k_rounds import is_far_matrix
from pullback.schedule.contraction.plan.lane_sums import lane_cost
from pullback.schedule.contraction.plan.one_pass import crosses_pages, is_streamed
from pullback.schedule.contraction.plan.register_tiles import reads, store_cost
from pullback.schedule.contraction.plan.runs import run_length
from pullback.schedule.contraction.plan.tap_columns import tap_length
from pullback.schedule.contraction.plan.vector_axis import vector_axis_cost
from pullback.schedule.contraction.problem.memory import distance, elements
from pullback.schedule.contraction.problem.problem import Problem
from pullback.schedule.tiles import slowness

Parts = Sequence[tuple[Problem, Draft]]


def cost(problem: Problem, draft: Draft) -> float:
    """Time relative to a perfect contraction: here it is known how often tasks pack the same elements."""
    if draft.lane_axis is not None:
        return lane_cost(problem, draft)
    if draft.run is not None:
        time = _run_cost(problem, draft)
    elif draft.taps is not None:
        time = _tap_cost(problem, draft)
    else:
        time = _column_cost(problem, draft)
    return time * tile_slowness(problem, draft) if problem.figures.counts_tiles else time


def _column_cost(problem: Problem, draft: Draft) -> float:
    a, b, figures = draft.a, draft.b, problem.figures
    store = store_cost(problem, draft.column, draft.rows)
    time = vector_axis_cost(problem, draft.column, store, copies(problem, draft.packing, draft.inner))
    if crosses_pages(problem, draft):
        time *= 1 + figures.page_crossing * elements(problem, a) / problem.work
    if is_streamed(problem, draft):
        time *= 1 + figures.spill_terms / math.prod(draft.inner[k] for k in problem.reduced)
        if is_far_matrix(problem, b):
            time /= 1 + figures.from_memory * elements(problem, b) / problem.work
    if figures.counts_tiles and draft.packing[a] in (Packing.PANELS, Packing.ROUND):
        time *= 1 + figures.pack * elements(problem, a) / problem.work
    return time


def _run_cost(problem: Problem, draft: Draft) -> float:
    y, x = problem.outputs[-2:]
    extents, inner = problem.extents, draft.inner
    blocks, rest = divmod(extents[y], inner[y])
    lengths = blocks * run_length(problem, draft.b, inner)
    lengths += run_length(problem, draft.b, {**inner, y: rest}) if rest else 0
    return lengths / (extents[y] * extents[x]) * (1 + problem.figures.store_sum / problem.depth)


def _tap_cost(problem: Problem, draft: Draft) -> float:
    assert draft.taps is not None
    figures, b = problem.figures, draft.b
    time = tap_length(problem, draft) / (problem.extents[draft.column] * problem.extents[draft.taps])
    is_near = 2 * partial_bytes(problem, draft) <= problem.group.machine.second_bytes
    add = figures.store_sum if is_near else figures.hand_over_sum
    parts = figures.spill_tap * round_count(problem, draft.inner) + add * (draft.split_k or 1)
    time *= 1 + (figures.transpose + parts) / problem.depth
    move = figures.transpose if distance(problem, b, draft.column) != 1 else 0
    packed = max(copies(problem, draft.packing, draft.inner)[b], elements(problem, b))
    return time * (1 + move * packed / problem.work)


def tile_slowness(problem: Problem, draft: Draft) -> float:
    """The time of a register tile relative to one that keeps the units busy. What goes on from row to row or from tap
    to tap reads a window, of whatever kind; large tiles of other columns are as those of matrices."""
    found = reads(problem, draft.a, draft.tile.rows)
    if draft.run is not None or draft.taps is not None:
        found = replace(found, near=True)
    elif not found.near and not problem.figures.counts_tiles:
        found = replace(found, plain=True)
    return slowness(draft.tile, problem.lanes, problem.group.machine.registers, found)


def time(parts: Parts) -> float:
    """FMAs in the time that contractions take one after the other."""
    loops = sum(problem.figures.parallel_loop for problem, _ in parts[1:])
    return sum(problem.work * cost(problem, draft) for problem, draft in parts) + loops


def tile_time(parts: Parts) -> float:
    """Likewise, with the slowness of register tiles, where :func:`cost` leaves it out: large ones are mostly fast."""
    loops = sum(problem.figures.parallel_loop for problem, _ in parts[1:])
    return sum(p.work * cost(p, draft) * _uncounted(p, draft) for p, draft in parts) + loops


def _uncounted(problem: Problem, draft: Draft) -> float:
    is_counted = problem.figures.counts_tiles or draft.lane_axis is not None
    return 1.0 if is_counted else tile_slowness(problem, draft)
