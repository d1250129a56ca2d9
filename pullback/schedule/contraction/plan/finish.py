"""From drafts to finished blockings: what follows from their decisions, for all contractions of a kernel together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from types import MappingProxyType

from pullback.schedule.contraction.plan.blocking import Blocking, Draft, Flat, Packing, packed
from pullback.schedule.contraction.plan.counts import round_count, task_count
from pullback.schedule.contraction.plan.packing import is_packed_by_tile
from pullback.schedule.contraction.plan.runs import row_length, run_length, shared_zeros
from pullback.schedule.contraction.plan.skips import skips_of
from pullback.schedule.contraction.plan.tap_columns import tap_length, tap_stride
from pullback.schedule.contraction.plan.task_order import is_thread_private, task_axes, terms, tile_axes
from pullback.schedule.contraction.problem.memory import lines_of_rows
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.schedule.contraction.problem.widen import pays_to_widen
from pullback.schedule.cost import worth_threads
from pullback.tir import Var
from pullback.tir.caches import LINE
from pullback.tir.expr import nbytes

Parts = Sequence[tuple[Problem, Draft]]


def finish(parts: Parts) -> tuple[tuple[Problem, Blocking], ...]:
    """The blockings of the contractions of one kernel."""
    threads = worth_threads(sum(problem.nanoseconds for problem, _ in parts))
    return tuple((problem, _finished(problem, draft, threads)) for problem, draft in parts)


def _finished(problem: Problem, draft: Draft, threads: bool) -> Blocking:
    order = task_axes(problem, draft)
    outermost = next((v for v in order if draft.inner[v] < problem.extents[v]), None)
    in_place = packed(draft.packing, Packing.DIRECT)
    by_round = packed(draft.packing, Packing.ROUND)
    is_plain = draft.lane_axis is None and draft.run is None
    decided = {f.name: getattr(draft, f.name) for f in fields(Draft)}
    decided |= {name: MappingProxyType(dict(decided[name])) for name in ("packing", "inner")}  # read-only
    return Blocking(
        **decided,
        threads=threads,
        task_count=task_count(problem, draft.inner),
        round_count=round_count(problem, draft.inner),
        task_order=tuple(order),
        tile_order=tuple(tile_axes(problem, draft)),
        term_order=terms(problem, draft),
        outermost=outermost,
        thread_private=_thread_private(problem, draft, threads, outermost),
        widened=frozenset(f for f in in_place if pays_to_widen(problem, f)),
        packed_by_tile=frozenset(f for f in by_round if is_packed_by_tile(problem, draft, f)),
        skips=MappingProxyType(skips_of(problem, draft) if is_plain else {}),
        prefetches_columns=_prefetches_columns(problem, draft),
        flat=_flat(problem, draft),
    )


def _thread_private(problem: Problem, draft: Draft, threads: bool, outermost: Var | None) -> frozenset[Factor]:
    """The factors that are packed as a whole, by each thread for itself."""
    parts = draft.split_k or 1
    if not threads or not problem.terms or task_count(problem, draft.inner) * parts == 1:
        return frozenset()
    whole = packed(draft.packing, Packing.PANELS, Packing.TRANSPOSED)
    return frozenset(f for f in whole if is_thread_private(problem, f, divided=parts > 1 or outermost in f.axes))


def _prefetches_columns(problem: Problem, draft: Draft) -> bool:
    """Whether a register tile reads its columns in place, from beyond L1."""
    b, last = draft.b, problem.reduced[-1] if problem.reduced else None
    is_plain = draft.packing[b] is Packing.DIRECT and b.is_input and not b.is_window and not pays_to_widen(problem, b)
    if last is None or last not in b.axes or not is_plain or not problem.figures.prefetches_columns:
        return False
    size, depth = nbytes(b.source.dtype), math.prod(draft.inner[k] for k in problem.reduced)
    return depth * LINE * lines_of_rows(draft.tile.columns * size, b.strides[last] * size) > problem.figures.l1


def _flat(problem: Problem, draft: Draft) -> Flat | None:
    if draft.run is not None:
        length = run_length(problem, draft.b, draft.inner)
        return Flat(length, row_length(problem, draft.b, draft.inner), shared_zeros(problem, draft.b))
    if draft.taps is not None:
        return Flat(tap_length(problem, draft), problem.extents[draft.column], apart=tap_stride(draft))
    return None
