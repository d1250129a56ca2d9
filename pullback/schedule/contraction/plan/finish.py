"""From drafts to finished blockings: what follows from their decisions, for all contractions of a kernel together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from types import MappingProxyType

from pullback.schedule.contraction.plan.blocking import Blocking, Draft, Packing, packed
from pullback.schedule.contraction.plan.counts import round_count, task_count
from pullback.schedule.contraction.plan.skips import skips_of
from pullback.schedule.contraction.plan.task_order import is_thread_private, task_axes, tile_axes
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.schedule.contraction.problem.widen import pays_to_widen
from pullback.schedule.cost import worth_threads
from pullback.tir import Var

Parts = Sequence[tuple[Problem, Draft]]


def finish(parts: Parts) -> tuple[tuple[Problem, Blocking], ...]:
    """The blockings of the contractions of one kernel."""
    threads = worth_threads(sum(problem.nanoseconds for problem, _ in parts))
    return tuple((problem, _finished(problem, draft, threads)) for problem, draft in parts)


def _finished(problem: Problem, draft: Draft, threads: bool) -> Blocking:
    order = task_axes(problem, draft)
    outermost = next((v for v in order if draft.inner[v] < problem.extents[v]), None)
    in_place = packed(draft.packing, Packing.DIRECT)
    decided = {f.name: getattr(draft, f.name) for f in fields(Draft)}
    decided |= {name: MappingProxyType(dict(decided[name])) for name in ("packing", "inner")}  # read-only
    return Blocking(
        **decided,
        threads=threads,
        task_count=task_count(problem, draft.inner),
        round_count=round_count(problem, draft.inner),
        task_order=tuple(order),
        tile_order=tuple(tile_axes(problem, draft)),
        outermost=outermost,
        thread_private=_thread_private(problem, draft, threads, outermost),
        widened=frozenset(f for f in in_place if pays_to_widen(problem, f)),
        skips=MappingProxyType(skips_of(problem, draft) if draft.lane_axis is None else {}),
    )


def _thread_private(problem: Problem, draft: Draft, threads: bool, outermost: Var | None) -> frozenset[Factor]:
    """The factors that are packed as a whole, by each thread for itself."""
    parts = draft.split_k or 1
    if not threads or not problem.terms or task_count(problem, draft.inner) * parts == 1:
        return frozenset()
    whole = packed(draft.packing, Packing.PANELS, Packing.TRANSPOSED)
    return frozenset(f for f in whole if is_thread_private(problem, f, divided=parts > 1 or outermost in f.axes))
