"""Other packing to cut up a contraction, that take every sum in the same order: what tuning may choose from.

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
from pullback.schedule.contraction.plan.runs import run_length
from pullback.schedule.contraction.plan.tap_columns import tap_length
from pullback.schedule.contraction.plan.task_order import order_of_sums
from pullback.schedule.contraction.problem.problem import Problem
from pullback.schedule.tiles import Tile, tiles
from pullback.schedule.tuning import Choice
from pullback.tir import Var


def choice_of(problem: Problem, blocking: Draft) -> Choice:
    """The choice that gives this blocking."""
    number = problem.outputs.index
    rows = tuple((number(v), count) for v, count in blocking.rows)
    return Choice(rows, blocking.tile.columns, tuple(blocking.inner[v] for v in problem.outputs))


def chosen(problem: Problem, blocking: Draft, choice: Choice | None) -> Draft:
    """The blocking as the choice has it. An InternalError when the choice is that of another problem."""
    if choice is None:
        return blocking
    result = _with(problem, blocking, choice)
    if result is None:
        raise InternalError(f"the choice {choice} does not fit the contraction {problem.anchor.name}")
    return result


def _with(problem: Problem, blocking: Draft, choice: Choice) -> Draft | None:
    """The blocking of a choice, or None when it would not cover the result in whole tiles, or sum in another order."""
    if len(choice.covers) != len(problem.outputs):
        return None
    rows = tuple((problem.outputs[k], count) for k, count in choice.rows)
    if [v for v, _ in rows] != [v for v, _ in blocking.rows]:
        return None
    steps = dict.fromkeys(problem.outputs, 1) | _steps(problem, blocking, rows, choice.columns)
    covers = dict(zip(problem.outputs, choice.covers, strict=True))
    for v, cover in covers.items():
        extent = problem.extents[v]
        if cover > extent or (cover % steps[v] and cover < extent):
            return None
    if any(problem.extents[v] % count for v, count in rows[:-1]) or any(problem.extents[v] < n for v, n in rows):
        return None
    tile = Tile(math.prod(count for _, count in rows), choice.columns)
    found = blocking.revised(rows=rows, tile=tile, inner={**blocking.inner, **covers})
    return found if order_of_sums(problem, found) == order_of_sums(problem, blocking) else None


def other_tiles(problem: Problem, blocking: Draft, most: int = 8) -> list[Choice]:
    """Other register tiles, the best first by the estimate that the default is the best of; none of sums in lanes."""
    if not blocking.rows or blocking.lane_axis is not None:
        return []
    machine, lanes = problem.group.machine, problem.lanes
    v, own = blocking.rows[0]  # the counts of the axes after it stay
    others = math.prod(count for _, count in blocking.rows) // own
    rows, columns = problem.extents[v] * others, problem.extents[blocking.column]
    if blocking.run is not None:
        columns = run_length(problem, blocking.b, blocking.inner)
    if blocking.taps is not None:
        columns = tap_length(problem, blocking)
    found: list[Choice] = []
    for _, tile in sorted(tiles(rows, columns, lanes, machine.registers), key=lambda t: t[0]):
        count, rest = divmod(tile.rows, others)
        if rest or not count:
            continue
        counts = [count, *(n for _, n in blocking.rows[1:])]
        choice = _covering(problem, blocking, counts, tile.columns)
        if choice not in found and choice != choice_of(problem, blocking) and _with(problem, blocking, choice):
            found.append(choice)
        if len(found) == most:
            break
    return found


def _covering(problem: Problem, blocking: Draft, counts: list[int], columns: int) -> Choice:
    """A choice with this tile whose tasks are as large as before, in whole tiles."""
    rows = tuple((v, count) for (v, _), count in zip(blocking.rows, counts, strict=True))
    steps, covers = _steps(problem, blocking, rows, columns), []
    for v in problem.outputs:
        step, extent = steps.get(v, 1), problem.extents[v]
        old = blocking.inner[v] if blocking.has_region or blocking.has_round else step
        covers.append(min(extent, -(-old // step) * step))
    return Choice(tuple((problem.outputs.index(v), count) for v, count in rows), columns, tuple(covers))


def _steps(problem: Problem, blocking: Draft, rows: Rows, columns: int) -> dict[Var, int]:
    """How far a register tile of these rows and columns reaches along its axes; running rows are taken as wholes, and
    so are the channels of all taps."""
    whole = {blocking.column, blocking.taps} if blocking.run is not None or blocking.taps is not None else set()
    return dict(rows) | {blocking.column: columns} | {v: problem.extents[v] for v in whole if v is not None}


def other_tasks(problem: Problem, blocking: Draft) -> Iterator[Choice]:
    """The same tile in tasks of half and twice the size along each axis, where tasks copy data for themselves."""
    if not blocking.has_region or blocking.lane_axis is not None:
        return
    choice = choice_of(problem, blocking)
    steps = _steps(problem, blocking, blocking.rows, blocking.tile.columns)
    for k, v in enumerate(problem.outputs):
        step, extent, cover = steps.get(v, 1), problem.extents[v], blocking.inner[v]
        for size in (cover * 2, -(-cover // 2)):
            size = min(extent, -(-size // step) * step)
            other = replace(choice, covers=(*choice.covers[:k], size, *choice.covers[k + 1 :]))
            changed = _with(problem, blocking, other) if size != cover else None
            if changed is not None and region_bytes(changed.packing, changed.inner) <= 2 * problem.figures.region:
                yield other
