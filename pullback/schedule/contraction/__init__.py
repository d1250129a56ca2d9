"""Contraction: matmuls and convolutions of every kind, with elementwise work on the result while it is in registers.

``problem.py`` says what a contraction is, ``blocking.py`` how it is cut up, ``lower.py`` writes the loops;
``region.py`` is the part of the data that a task copies for itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.schedule.contraction.blocking import Blocking
from pullback.schedule.contraction.lower import Lowering
from pullback.schedule.contraction.phases import phases
from pullback.schedule.contraction.problem import Problem
from pullback.schedule.group import Group
from pullback.tir import PrimFunc, seq


@dataclass(frozen=True, eq=False)
class Contraction:
    """``anchor[o…] = Σ_{k…} a·b``, then elementwise stages of the anchor's shape."""

    group: Group
    parts: tuple[tuple[Problem, Blocking], ...]

    @staticmethod
    def recognize(group: Group) -> Contraction | None:
        problem = Problem.of(group)
        if problem is None:
            return None
        parts = [(part, Blocking.of(part)) for part in phases(problem)]
        if any(blocking is None for _, blocking in parts):
            return None
        return Contraction(group, tuple(parts))  # type: ignore[arg-type]

    def lower(self, name: str) -> PrimFunc:
        return self.group.function(name, seq(*(Lowering(*part).body() for part in self.parts)))
