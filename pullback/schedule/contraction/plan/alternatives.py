"""Other blockings of a contraction that take every sum in the same order: what tuning may choose from.

The order of a sum is fixed by the partial sums and the rounds of terms. These stay; the register tile and what a task
covers of the result's axes may change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from pullback.ir.errors import InternalError
from pullback.schedule.contraction.plan.blocking import Draft, Rows
from pullback.schedule.contraction.plan.counts import region_bytes
from pullback.schedule.contraction.plan.task_order import order_of_sums
from pullback.schedule.contraction.problem.problem import Problem
from pullback.schedule.tiles import Tile, tiles
from pullback.schedule.tuning import Choice
from pullback.tir import Var


def choice_of(problem: Problem, draft: Draft) -> Choice:
    """The choice that gives this blocking."""
    number = problem.outputs.index
    rows = tuple((number(v), count) for v, count in draft.rows)
    return Choice(rows, draft.tile.columns, tuple(draft.inner[v] for v in problem.outputs))


def chosen(problem: Problem, draft: Draft, choice: Choice | None) -> Draft:
    """The blocking as the choice has it. An InternalError when the choice is that of another problem."""
    if choice is None:
        return draft
    result = _with(problem, draft, choice)
    if result is None:
        raise InternalError(f"the choice {choice} does not fit the contraction {problem.anchor.name}")
    return result


def _with(problem: Problem, draft: Draft, choice: Choice) -> Draft | None:
    """The blocking of a choice, or None when it would not cover the result in whole tiles, or sum in another order."""
    if len(choice.covers) != len(problem.outputs):
        return None
    rows = tuple((problem.outputs[k], count) for k, count in choice.rows)
    if [v for v, _ in rows] != [v for v, _ in draft.rows]:
        return None
    steps = dict.fromkeys(problem.outputs, 1) | _steps(draft, rows, choice.columns)
    covers = dict(zip(problem.outputs, choice.covers, strict=True))
    for v, cover in covers.items():
        extent = problem.extents[v]
        if cover > extent or (cover % steps[v] and cover < extent):
            return None
    if any(problem.extents[v] % count for v, count in rows[:-1]) or any(problem.extents[v] < n for v, n in rows):
        return None
    tile = Tile(math.prod(count for _, count in rows), choice.columns)
    found = draft.revised(rows=rows, tile=tile, inner={**draft.inner, **covers})
    return found if order_of_sums(problem, found) == order_of_sums(problem, draft) else None


def other_tiles(problem: Problem, draft: Draft, most: int = 8) -> list[Choice]:
    """Other register tiles, the best first by the estimate that the default is the best of; none of sums in lanes."""
    if not draft.rows or draft.lane_axis is not None:
        return []
    machine, lanes = problem.group.machine, problem.lanes
    v, own = draft.rows[0]  # the counts of the axes after it stay
    others = math.prod(count for _, count in draft.rows) // own
    rows, columns = problem.extents[v] * others, problem.extents[draft.column]
    found: list[Choice] = []
    for _, tile in sorted(tiles(rows, columns, lanes, machine.registers), key=lambda t: t[0]):
        count, rest = divmod(tile.rows, others)
        if rest or not count:
            continue
        counts = [count, *(n for _, n in draft.rows[1:])]
        choice = _covering(problem, draft, counts, tile.columns)
        if choice not in found and choice != choice_of(problem, draft) and _with(problem, draft, choice):
            found.append(choice)
        if len(found) == most:
            break
    return found


def _covering(problem: Problem, draft: Draft, counts: list[int], columns: int) -> Choice:
    """A choice with this tile whose tasks are as large as before, in whole tiles."""
    rows = tuple((v, count) for (v, _), count in zip(draft.rows, counts, strict=True))
    steps, covers = _steps(draft, rows, columns), []
    for v in problem.outputs:
        step, extent = steps.get(v, 1), problem.extents[v]
        old = draft.inner[v] if draft.has_region else step
        covers.append(min(extent, -(-old // step) * step))
    return Choice(tuple((problem.outputs.index(v), count) for v, count in rows), columns, tuple(covers))


def _steps(draft: Draft, rows: Rows, columns: int) -> dict[Var, int]:
    """How far a register tile of these rows and columns reaches along its axes."""
    return dict(rows) | {draft.column: columns}


def other_tasks(problem: Problem, draft: Draft) -> Iterator[Choice]:
    """The same tile in tasks of half and twice the size along each axis, where tasks copy data for themselves."""
    if not draft.has_region or draft.lane_axis is not None:
        return
    choice = choice_of(problem, draft)
    steps = _steps(draft, draft.rows, draft.tile.columns)
    for k, v in enumerate(problem.outputs):
        step, extent, cover = steps.get(v, 1), problem.extents[v], draft.inner[v]
        for size in (cover * 2, -(-cover // 2)):
            size = min(extent, -(-size // step) * step)
            other = replace(choice, covers=(*choice.covers[:k], size, *choice.covers[k + 1 :]))
            changed = _with(problem, draft, other) if size != cover else None
            if changed is not None and region_bytes(changed.packing, changed.inner) <= 2 * problem.figures.region:
                yield other
