"""Columns of one tap after the other: vectors that go on from the last channel to the next tap's first one.

    dw[o, c, y, x] = Σ dy[o, h, w] · image[c, h + y, w + x]          C values of c, X of x: 19 and 5, say
    run[o, y, q] = Σ dy[o, h, w] · region[h + y, C·w + q],  dw[o, c, y, x] = run[o, y, C·x + c]       q < C·X

A region has its channels innermost, so that what the taps of a row read at a place is contiguous. Their 95 columns fill
six vectors, where those of 19 channels fill one and leave 13 lanes of another one idle, five times. The sums are
partial sums, in rows of whole vectors; the loop that adds them up stores results in their places.

Where taps are d places apart, the region has every d-th place one after the other, so that taps are neighbours again.
"""

from __future__ import annotations

import math
from dataclasses import replace

from pullback.schedule.contraction.plan.blocking import Draft, Packing
from pullback.schedule.contraction.plan.counts import part_count, partial_bytes, region_bytes
from pullback.schedule.contraction.plan.packing import packing_of_rows, plain_packing
from pullback.schedule.contraction.plan.register_tiles import more_rows, reads
from pullback.schedule.contraction.plan.split_k import in_shorter_rounds, with_split_k
from pullback.schedule.contraction.plan.tasks import PARTS, grow, grow_sums
from pullback.schedule.contraction.problem.memory import distance, region_order
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.schedule.cost import worth_threads
from pullback.schedule.tiles import best_tile
from pullback.tir import Var
from pullback.tir.caches import PAGE
from pullback.tir.expr import is_half, nbytes

_MOST_SUMS = 4  # times as many bytes as L2 has, of all partial sums


def with_taps(problem: Problem) -> Draft | None:
    """The blocking whose vectors go on from tap to tap, if there is one."""
    for b in problem.factors:
        (a,) = (f for f in problem.factors if f is not b)
        rows = [v for v in problem.outputs if v in a.axes and v not in b.axes]
        if not rows or b.source.ndim < 2:
            continue
        for column in (v for v in reversed(problem.outputs) if v not in a.axes):
            tap = _tap(problem, a, b, column)
            if tap is not None:
                found = _with_tasks(problem, a, b, rows, column, tap)
                return found if _fits(problem, found) else None
    return None


def _fits(problem: Problem, draft: Draft) -> bool:
    """Whether a task's region and all partial sums are small enough."""
    most = _MOST_SUMS * problem.group.machine.second_bytes
    is_near = region_bytes(draft.packing, draft.inner) <= problem.figures.most_region
    return is_near and partial_bytes(problem, draft) <= most


def _tap(problem: Problem, a: Factor, b: Factor, column: Var) -> Var | None:
    """The axis of the result that moves along the image's rows, if ``column`` is an axis of it by itself."""
    if b.windows is None or not b.is_window or is_half(b.source.dtype) or b.dtype != b.source.dtype:
        return None
    (*_, d, last) = region_order(problem.group, b, column)
    if b.windows[last].terms.get(column) != 1 or any(v in problem.reduced for v in b.windows[last].terms):
        return None
    taps = [v for v, c in b.windows[d].terms.items() if v in problem.outputs and c > 0 and v not in a.axes]
    places = [v for v in b.windows[d].terms if v not in taps]
    is_own = all(sum(v in w.terms for w in b.windows) == 1 for v in (column, *taps))
    is_one = len(taps) == 1 and is_own and all(v in problem.reduced for v in places)
    return taps[0] if is_one and places and _are_near(problem, column) else None


def _are_near(problem: Problem, column: Var) -> bool:
    """Whether results of neighbouring columns are in one page of memory: those of a batch's images are not, so that
    storing them in their places costs more than full vectors save."""
    after = problem.outputs[problem.outputs.index(column) + 1 :]
    return math.prod(problem.extents[v] for v in after) * nbytes(problem.anchor.dtype) < PAGE


def _with_tasks(problem: Problem, a: Factor, b: Factor, rows: list[Var], column: Var, tap: Var) -> Draft:
    lanes, registers = problem.lanes, problem.group.machine.registers
    row = min(rows, key=lambda v: (distance(problem, a, v), -rows.index(v)))
    length = _length(problem, column, tap)
    own = replace(reads(problem, a, problem.extents[row]), near=True)
    _, tile = best_tile(problem.extents[row], length, lanes, registers, reads=own)
    beside = {v for w in b.windows or () if column in w.terms for v in w.terms}  # whose channels lie between others
    counts, tile = more_rows(problem, ((row, tile.rows),), tile, beside | {tap})
    packing = {a: packing_of_rows(problem, a, counts, plain_packing(a, column)), b: Packing.REGION}
    inner = dict.fromkeys((*problem.outputs, *problem.reduced), 1) | dict(counts)
    inner |= {v: problem.extents[v] for v in (column, tap)}
    for v in (v for v in problem.outputs if v not in beside and v is not tap):
        grow(problem, v, inner, packing, dict(counts).get(v, 1), 1)
    grow_sums(problem, [b], inner, packing)
    draft = Draft(column, a, b, counts, tile, packing, inner, taps=tap)
    if part_count(problem, inner) < PARTS and worth_threads(problem.nanoseconds):
        draft = in_shorter_rounds(problem, draft)
    return with_split_k(problem, draft)


def _length(problem: Problem, column: Var, tap: Var) -> int:
    lanes = problem.lanes
    return -(-problem.extents[column] * problem.extents[tap] // lanes) * lanes


def tap_length(problem: Problem, draft: Draft) -> int:
    """Columns of all taps, in whole vectors."""
    assert draft.taps is not None
    return _length(problem, draft.column, draft.taps)


def tap_stride(draft: Draft) -> int:
    """Places of the image from tap to tap."""
    return next(c for w in draft.b.windows or () for v, c in w.terms.items() if v is draft.taps)
