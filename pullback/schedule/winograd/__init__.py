"""Winograd: convolutions of three taps and stride 1, and their gradients, with fewer multiplications.

``algebra.py`` has the transforms, ``plan.py`` says which contractions are such filters and how they are cut up,
``lower.py`` writes the loops.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.schedule.contraction.pairs import paired
from pullback.schedule.contraction.problem import Problem
from pullback.schedule.group import Group
from pullback.schedule.winograd.lower import Lowering
from pullback.schedule.winograd.plan import Filter
from pullback.tir import PrimFunc


@dataclass(frozen=True, eq=False)
class Winograd:
    """A contraction that is a filter, then elementwise stages of its shape."""

    group: Group
    filter: Filter

    @staticmethod
    def recognize(group: Group) -> Winograd | None:
        problem = Problem.of(group)
        if problem is None or paired(problem) is not problem:
            return None  # pairs of bfloat16 save as many multiplications, and need no transforms
        filter = Filter.of(problem.merged)
        return Winograd(group, filter) if filter is not None else None

    def lower(self, name: str) -> PrimFunc:
        return self.group.function(name, Lowering(self.filter).body())
