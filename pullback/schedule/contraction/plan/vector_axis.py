"""The vector axis: what each one would cost, from the way factors and results lie in memory."""

from __future__ import annotations

from collections.abc import Mapping

from pullback.schedule.contraction.problem.memory import distance, elements
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.tir import Var


def vector_axes(problem: Problem) -> list[Var]:
    """The axes of the result along which vectors may lie, the cheapest first; none that costs twice as much."""
    axes = [v for v in reversed(problem.outputs) if any(v in f.axes for f in problem.factors)]
    costs = {v: vector_axis_cost(problem, v) for v in axes}
    return sorted((v for v in axes if costs[v] < 2 * min(costs.values())), key=costs.__getitem__)


def vector_axis_cost(
    problem: Problem, v: Var, store: int | None = None, packed: Mapping[Factor, int] | None = None
) -> float:
    """Time with vectors along the axis, relative to perfect vectors.

    ``store``: FMAs that storing a result costs, if it is no scatter. ``packed``: how many elements of a factor all
    tasks pack, where that is more than it has."""
    extent, figures = problem.extents[v], problem.figures
    cost = -(-extent // problem.lanes) * problem.lanes / extent
    if v is not problem.outputs[-1]:
        cost *= 1 + (figures.gather if store is None else store) / problem.depth
    elif problem.has_gaps:
        cost *= 1 + figures.strided_store / problem.depth
    for factor in (f for f in problem.factors if v in f.axes):
        is_strided = any(abs(w.terms[v]) != 1 for w in factor.windows or () if v in w.terms)
        apart = distance(problem, factor, v)
        if apart != 1:
            move: float = figures.transpose if _is_transposed(problem, factor) else figures.gather
            move *= 2 if is_strided else 1
            if 0 < apart < problem.lanes:
                move = min(move, figures.strided_load)
            cost *= 1 + move * (packed or {}).get(factor, elements(problem, factor)) / problem.work
        if factor.is_window and is_strided:
            cost *= 4  # every load gathers
    return cost


def _is_transposed(problem: Problem, factor: Factor) -> bool:
    """Whether a packed copy is transposed in registers: its innermost axis and that of memory are both innermost
    loops."""
    terms = [k for k in problem.reduced if k in factor.axes]
    return factor.is_window or bool(terms and distance(problem, factor, terms[-1]) == 1)
