"""The axis of vectors: what each would cost, from the way factors and results lie in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pullback.schedule.contraction.problem.memory import distance, elements
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.tir import Var


@dataclass(frozen=True)
class Moves:
    """Multiply-adds in the time that one element takes: to be turned in registers on its way into a copy, to be taken
    from between others in the same line or put there, and to be gathered or scattered."""

    turn: int
    gap: int
    move: int


_LARGE_TILES = Moves(16, 32, 64)  # measured with vectors of 64 bytes
_SMALL_TILES = Moves(10, 16, 32)  # and of 32, which do half as many


def moves(problem: Problem) -> Moves:
    """What moving elements costs on the problem's machine."""
    return _SMALL_TILES if problem.group.machine.has_small_tiles else _LARGE_TILES


def vector_axes(problem: Problem, lanes: int) -> list[Var]:
    """The axes along which vectors may lie, the best first, and none much worse than that."""
    columns = [v for v in reversed(problem.outputs) if any(v in f.axes for f in problem.factors)]
    costs = {v: vector_axis_cost(problem, v, lanes) for v in columns}
    return sorted((v for v in columns if costs[v] < 2 * min(costs.values())), key=costs.__getitem__)


def vector_axis_cost(
    problem: Problem, v: Var, lanes: int, store: int | None = None, copied: Mapping[Factor, int] | None = None
) -> float:
    """Time with vectors along the axis, relative to a perfect one. ``store``: multiply-adds in the time that one result
    takes, if it is not scattered; ``copied``: how many elements of a factor all tasks copy, where that is more than it
    has."""
    extent, costs, has_small_tiles = problem.extents[v], moves(problem), problem.group.machine.has_small_tiles
    cost = -(-extent // lanes) * lanes / extent
    if v is not problem.outputs[-1]:
        cost *= 1 + (costs.move if store is None else store) / problem.depth
    elif has_small_tiles and problem.has_gaps:
        cost *= 1 + costs.gap / problem.depth
    for factor in problem.factors:
        if v not in factor.axes:
            continue
        stepped = any(abs(w.terms[v]) != 1 for w in factor.windows or () if v in w.terms)
        if distance(problem, factor, v) != 1:
            move = (costs.turn if _is_turned(problem, factor) else costs.move) * (2 if stepped else 1)
            if has_small_tiles and 0 < distance(problem, factor, v) < lanes:
                move = min(move, costs.gap)
            count = (copied or {}).get(factor, elements(problem, factor))
            cost *= 1 + move * count / problem.work
        if factor.is_window and stepped:
            cost *= 4  # every load would gather
    return cost


def _is_turned(problem: Problem, factor: Factor) -> bool:
    """Whether what a copy has innermost, and what memory has, are both axes of its last loops."""
    terms = [k for k in problem.reduced if k in factor.axes]
    return factor.is_window or bool(terms and distance(problem, factor, terms[-1]) == 1)
