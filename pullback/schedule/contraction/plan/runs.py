"""Running rows: vectors that go on from one row of an image to the next.

    out[c, y, x] = Σ a[c, k] · image[y + k₁, x + k₂]                        W values of x, 22 of them, say
    run[c, q] = Σ a[c, k] · region[q + S·k₁ + k₂],  out[c, y, x] = run[c, S·y + x]         S = W + (taps - 1)

A region's rows are contiguous, each as long as the taps make it. So the same taps of all rows are one row, and few
lanes are idle: the S - W between two rows of results, which nobody reads, where vectors along x would leave 10 of 32.
The zeros at the end of a padded row are those that the next one begins with: S = W + (taps - 1) / 2. The sums of a
tile's rows are spilled until the results of a task are stored, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pullback.schedule.contraction.plan.blocking import Draft, Packing, Packings, Rows
from pullback.schedule.contraction.plan.packing import packing_of_rows, plain_packing, roles
from pullback.schedule.contraction.plan.register_tiles import reads
from pullback.schedule.contraction.plan.skips import skips_of
from pullback.schedule.contraction.plan.tasks import TASKS, enough_tasks, fitting
from pullback.schedule.contraction.problem.memory import distance, region_order, region_shape
from pullback.schedule.contraction.problem.padding import at_or_after, zero_outside
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.schedule.cost import is_costly
from pullback.schedule.tiles import Tile, best_tile
from pullback.tir import Var
from pullback.tir.expr import is_half

_INSIDE = 0.8  # of the terms that padding does not make zero, at the least
_LEAST = 4  # rows of a task: fewer run on too seldom
_ROWS = 8  # of a task, as a first guess at how long a run is


def in_runs(problem: Problem) -> Draft | None:
    """The blocking whose vectors run on from row to row, if there is one."""
    if len(problem.outputs) < 2:
        return None
    y, x = problem.outputs[-2:]
    a, b = roles(problem, x)
    rows = [v for v in problem.outputs if v in a.axes and v not in b.axes]
    if not rows or not _is_image(problem, b, y, x) or x in a.axes or y in a.axes:
        return None
    if any(is_costly(s) for s in problem.group.stages if s not in problem.before and s is not problem.anchor):
        return None  # elementary functions of results are computed for a whole tile
    row = min(rows, key=lambda v: (distance(problem, a, v), -rows.index(v)))
    tried = (_with_tasks(problem, a, b, row, least) for least in (TASKS, enough_tasks(problem)))
    return next((draft for draft in tried if draft is not None), None)


def _with_tasks(problem: Problem, a: Factor, b: Factor, row: Var, least: int) -> Draft | None:
    """The blocking with at least so many tasks, if each has rows enough."""
    y, x = problem.outputs[-2:]
    inner = {**problem.extents, **dict.fromkeys(problem.outputs, 1)}
    inner |= {y: min(_ROWS, problem.extents[y]), x: problem.extents[x]}
    packing: Packings = {}
    tile, rows = Tile(1, 1), Rows()
    for _ in range(2):  # how long a run is depends on the tasks, and these on the tile
        tile = _tile(problem, a, row, run_length(problem, b, inner))
        rows = ((row, tile.rows),)
        packing = {a: packing_of_rows(problem, a, rows, plain_packing(a, x)), b: Packing.REGION}
        found = fitting(problem, [(rows, Tile(tile.rows, problem.extents[x]))], x, packing, problem.lanes, least)
        if found is None or found[-1][y] < min(_LEAST, problem.extents[y]):
            return None
        inner = found[-1]
    return Draft(x, a, b, rows, tile, packing, inner, run=y)


def _tile(problem: Problem, a: Factor, row: Var, length: int) -> Tile:
    extent, own = problem.extents[row], replace(reads(problem, a, problem.extents[row]), near=True)
    return best_tile(extent, length, problem.lanes, problem.group.machine.registers, reads=own)[1]


def _is_image(problem: Problem, b: Factor, y: Var, x: Var) -> bool:
    """Whether the last two axes of a factor are an image whose windows move by one: each with ``y`` or ``x``, and an
    axis of the sum at the most."""
    if b.windows is None or not b.is_window or is_half(b.source.dtype) or b.dtype != b.source.dtype:
        return False
    if len(b.windows) < 2 or b.windows[-2].terms.get(y) != 1 or b.windows[-1].terms.get(x) != 1:
        return False
    if distance(problem, b, x) != 1 or any(y in w.terms or x in w.terms for w in b.windows[:-2]):
        return False
    if region_order(problem.group, b, x)[-2:] != [b.source.ndim - 2, b.source.ndim - 1]:
        return False  # in memory, and so in the region, another axis is between them
    others = [v for w, own in zip(b.windows[-2:], (y, x), strict=True) for v in w.terms if v is not own]
    return all(v in problem.reduced for v in others) and y not in b.windows[-1].terms and x not in b.windows[-2].terms


def row_length(problem: Problem, b: Factor, inner: Mapping[Var, int]) -> int:
    """Elements of a row of the region."""
    return region_shape(b, inner)[-1] - shared_zeros(problem, b)


def shared_zeros(problem: Problem, b: Factor) -> int:
    """Zeros at the end of each row of the region that are those at the beginning of the next one."""
    assert b.windows is not None
    bounds = zero_outside(b.source, len(b.windows) - 1)
    if bounds is None:
        return 0
    first, last = b.windows[-1].range(problem.extents)
    low, high = (at_or_after(bound, b.steps[-1]) for bound in bounds)
    return max(0, min(low - first, last + 1 - high))


def run_length(problem: Problem, b: Factor, inner: Mapping[Var, int]) -> int:
    """Columns from the first result of a task to its last one, in whole vectors."""
    y, x = problem.outputs[-2:]
    lanes, row = problem.lanes, row_length(problem, b, inner)
    return -(-(inner[y] * row - (row - problem.extents[x])) // lanes) * lanes


def may_run(problem: Problem, draft: Draft) -> bool:
    """Whether a blocking has vectors along the rows of an image, and skips nothing that running rows would compute."""
    is_plain = draft.column is problem.outputs[-1] and draft.lane_axis is None
    return is_plain and not skips_of(problem, draft) and _inside(problem, draft.b) >= _INSIDE


def _inside(problem: Problem, b: Factor) -> float:
    """The part of a window's terms that are not zeros of its padding: other blockings can skip these."""
    part = 1.0
    for d, window in enumerate(b.windows or ()):
        bounds = zero_outside(b.source, d)
        if bounds is None or len(window.terms) != 2:
            continue
        low, high = (at_or_after(bound, b.steps[d]) - window.const for bound in bounds)
        (v, c), (k, tap) = window.terms.items()
        places = [c * i + tap * j for i in range(problem.extents[v]) for j in range(problem.extents[k])]
        part *= sum(low <= place < high for place in places) / len(places)
    return part
