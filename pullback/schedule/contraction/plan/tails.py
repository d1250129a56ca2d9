"""Tails: an axis of the result that would fill few lanes of its last vector is split before them.

    for j in 17:   →   for j in 16;  for j in 16 … 17        with lanes of 16

Both are contractions of their own. The vectors of the first are full, the other may have another vector axis, an axis
of the sum if that is better.
"""

from __future__ import annotations

import math
from dataclasses import replace

from pullback.schedule.affine import affine
from pullback.schedule.contraction.plan.blocking import Draft
from pullback.schedule.contraction.plan.choice import blocking_of, is_of_matrices
from pullback.schedule.contraction.plan.cost import time
from pullback.schedule.contraction.plan.k_rounds import is_far_matrix
from pullback.schedule.contraction.plan.lane_sums import in_lanes
from pullback.schedule.contraction.problem.memory import distance, elements
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.tir import Var
from pullback.tir.visitor import substitute

_IDLE = 1.3  # of a perfect contraction's time: below, vectors along the sum are not looked at
_WASTES = 1.2, 1.1  # likewise, and of matrices with vectors along the result: below, there is little to gain
_BETTER = 0.85, 0.95  # of the time as a whole, and of theirs: what the parts must take, as estimates are rough

Parts = list[tuple[Problem, Draft]]


def split_tails(problem: Problem) -> Parts:
    """The contractions that a problem with a blocking is split into, mostly itself alone."""
    found = _whole(problem)
    assert found is not None
    whole, lanes = time(found), problem.lanes
    blocking = found[0][1]
    is_plain = is_of_matrices(problem) and blocking.lane_axis is None and blocking.split_k is None
    if whole < _WASTES[is_plain] * problem.work or whole / 2 < problem.figures.parallel_loop:
        return found
    axes = [v for v in problem.outputs if has_poor_tail(problem.extents[v], lanes)]
    options = [
        (time(parts) + _read_again(problem, v), parts) for v in axes if (parts := _parts(problem, v)) is not None
    ]
    least, best = min(options, key=lambda option: option[0], default=(math.inf, found))
    return best if least < _BETTER[is_plain] * whole else found


def _whole(problem: Problem) -> Parts | None:
    """A problem as one contraction; its vector axis is one of the result, or of the sum if that takes less."""
    blocking = blocking_of(problem)
    if blocking is None:
        return None
    found = [(problem, blocking)]
    if time(found) < _IDLE * problem.work:
        return found
    long = problem.with_long_sum
    lanes = in_lanes(long)
    return [(long, lanes)] if lanes is not None and time([(long, lanes)]) < time(found) else found


def has_poor_tail(extent: int, lanes: int) -> bool:
    """Whether the last of several vectors would have few lanes."""
    return 0 < extent % lanes <= lanes // 2 < lanes < extent


def split_along(problem: Problem, axis: Var, at: int) -> tuple[Problem, Problem]:
    """The results with the values of an axis before this one, and the others."""
    return _part(problem, axis, 0, at), _part(problem, axis, at, problem.extents[axis])


def _parts(problem: Problem, axis: Var) -> Parts | None:
    """Whole vectors along an axis, and the rest of it."""
    lanes = problem.lanes
    parts = split_along(problem, axis, problem.extents[axis] // lanes * lanes)
    first, last = map(_whole, parts)
    return None if first is None or last is None else first + last


def _read_again(problem: Problem, axis: Var) -> int:
    """FMAs in the time that the second part waits for what it shares with the first one: a matrix that comes from
    beyond L2 again, of which it takes a few lines at a time. Lines along the terms come in time."""
    shared = [
        f for f in problem.factors if axis not in f.axes and all(distance(problem, f, k) != 1 for k in problem.reduced)
    ]
    return problem.figures.reread_far * sum(elements(problem, f) for f in shared if is_far_matrix(problem, f))


def _part(problem: Problem, axis: Var, first: int, end: int) -> Problem:
    """The part of a problem whose results have the values of an axis from ``first`` to ``end``."""
    new = Var(axis.name)
    extents = {new if v is axis else v: end - first if v is axis else n for v, n in problem.extents.items()}
    moved = {axis: new + first}

    def factor(f: Factor) -> Factor:
        reads = tuple(substitute(r, moved) for r in f.reads)
        if f.windows is not None:
            indices = [index for r in reads if (index := affine(r, extents)) is not None]
            assert len(indices) == len(reads)
            return Factor.of(f.dtype, f.source, indices, extents, f.steps, f.is_view)
        strides = {new if v is axis else v: stride for v, stride in f.strides.items()}
        return replace(f, reads=reads, strides=strides, extents=extents)

    return replace(
        problem,
        factors=(factor(problem.factors[0]), factor(problem.factors[1])),
        outputs=tuple(new if v is axis else v for v in problem.outputs),
        extents=extents,
        place={a: substitute(e, moved) for a, e in problem.place.items()},
    )
