"""Contraction: matmuls and convolutions of every kind, with elementwise work on the result while it is in registers.

``problem.py`` says what a contraction is, ``blocking.py`` how it is cut up, ``lower.py`` writes the loops;
``region.py`` is the part of the data that a task copies for itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.schedule.contraction.blocking import Blocking
from pullback.schedule.contraction.lower import Lowering
from pullback.schedule.contraction.problem import Problem
from pullback.schedule.group import Group
from pullback.tir import PrimFunc


@dataclass(frozen=True, eq=False)
class Contraction:
    """``anchor[o…] = Σ_{k…} a·b``, then elementwise stages of the anchor's shape."""

    problem: Problem
    blocking: Blocking

    @staticmethod
    def recognize(group: Group) -> Contraction | None:
        problem = Problem.of(group)
        blocking = Blocking.of(problem) if problem is not None else None
        return Contraction(problem, blocking) if problem is not None and blocking is not None else None

    def lower(self, name: str) -> PrimFunc:
        return Lowering(self.problem, self.blocking).kernel(name)
