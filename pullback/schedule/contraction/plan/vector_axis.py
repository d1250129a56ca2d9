"""The axis of vectors: what each would cost, from the way factors and results lie in memory."""

from __future__ import annotations

from collections.abc import Mapping

from pullback.schedule.contraction.problem.memory import distance, elements
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.tir import Var


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
    extent, costs = problem.extents[v], problem.figures
    cost = -(-extent // lanes) * lanes / extent
    if v is not problem.outputs[-1]:
        cost *= 1 + (costs.gather if store is None else store) / problem.depth
    elif problem.has_gaps:
        cost *= 1 + costs.strided_store / problem.depth
    for factor in problem.factors:
        if v not in factor.axes:
            continue
        stepped = any(abs(w.terms[v]) != 1 for w in factor.windows or () if v in w.terms)
        if distance(problem, factor, v) != 1:
            move = (costs.transpose if _is_turned(problem, factor) else costs.gather) * (2 if stepped else 1)
            if 0 < distance(problem, factor, v) < problem.lanes:
                move = min(move, costs.strided_load)
            count = (copied or {}).get(factor, elements(problem, factor))
            cost *= 1 + move * count / problem.work
        if factor.is_window and stepped:
            cost *= 4  # every load would gather
    return cost


def _is_turned(problem: Problem, factor: Factor) -> bool:
    """Whether what a copy has innermost, and what memory has, are both axes of its last loops."""
    terms = [k for k in problem.reduced if k in factor.axes]
    return factor.is_window or bool(terms and distance(problem, factor, terms[-1]) == 1)
