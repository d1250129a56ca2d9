"""Winograd: convolutions of three taps and stride 1, and their gradients, with fewer multiplications.

``algebra.py`` has the transforms, ``plan.py`` says which contractions are such filters and how they are blocked,
``lower.py`` writes the loops. Columns that would fill few lanes of their last vector are left to a plain contraction.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.schedule.contraction.describe import flops_of, nest_of
from pullback.schedule.contraction.emit.kernel import kernel
from pullback.schedule.contraction.plan.choice import blocking_of
from pullback.schedule.contraction.plan.cost import time
from pullback.schedule.contraction.plan.finish import finish
from pullback.schedule.contraction.plan.tails import Parts, has_poor_tail, split_along, split_tails
from pullback.schedule.contraction.problem.bfloat16_pairs import paired
from pullback.schedule.contraction.problem.problem import Problem
from pullback.schedule.describe import arithmetic
from pullback.schedule.group import Group
from pullback.schedule.winograd.describe import filter_flops, nest_of_filter
from pullback.schedule.winograd.lower import Lowering
from pullback.schedule.winograd.plan import Filter, vectors
from pullback.tir import PrimFunc, seq
from pullback.tir.description import Description

_BETTER = 0.95  # of the time as a whole: what the parts must take


@dataclass(frozen=True, eq=False)
class Winograd:
    """A contraction that is a filter, then elementwise stages of its shape. ``rest``: what is no part of the filter.

        out[t, j] = Σ_{tap, c} data[t + tap, c] · w[tap, c, j]   →   m = (Bᵀ·data) · (G·w) at each point; out = Aᵀ·m

    Checks: a contraction of float32 or float64 whose data is read in windows of three taps and stride 1, along one or
    two axes, and that takes less time so. Pairs of bfloat16 are left to Contraction. Results are rounded otherwise than
    by a plain sum.
    """

    group: Group
    filter: Filter
    rest: Parts

    @staticmethod
    def recognize(group: Group) -> Winograd | None:
        problem = Problem.of(group.nominal)  # whether it is faster depends on no cache, and so do no bits
        if problem is None or paired(problem) is not problem:
            return None  # pairs of bfloat16 save as many multiplications, and need no transforms
        filter = Filter.of(problem.merged)
        if filter is None:
            return None
        return _cut(group, filter) or Winograd(group, filter, [])

    def lower(self, name: str) -> PrimFunc:
        group = self.filter.problem.group
        return group.function(name, seq(Lowering(self.filter).body(), kernel(finish(self.rest), {})))

    def describe(self) -> Description:
        nests = [nest_of_filter(self.filter), *(nest_of(*part) for part in finish(self.rest))]
        flops = filter_flops(self.filter) + sum(flops_of(problem) for problem, _ in self.rest)
        return arithmetic("winograd", self.filter.problem.group, nests, flops)


def _cut(group: Group, filter: Filter) -> Winograd | None:
    """A filter of whole vectors of columns, and the columns after them."""
    problem, lanes = filter.problem, filter.problem.lanes
    columns = problem.extents[filter.column]
    if not has_poor_tail(columns, lanes):
        return None
    if any(f.source.dtype != problem.anchor.dtype for f in problem.factors):
        return None  # half types are made wide in other ways there
    first, last = split_along(problem, filter.column, columns // lanes * lanes)
    even = Filter.of(first)
    if even is None or blocking_of(last) is None:
        return None
    rest = split_tails(last)
    if vectors(even) + (time(rest) + problem.figures.parallel_loop) / lanes > _BETTER * vectors(filter):
        return None
    return Winograd(group, even, rest)
