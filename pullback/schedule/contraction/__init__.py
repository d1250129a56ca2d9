"""Contraction: matmuls and convolutions of every kind, with elementwise work on the result while it is in registers.

``problem/`` says what is computed, ``plan/`` how it is blocked, ``emit/`` writes the loops. Each imports only those
before it, and ``emit/`` of ``plan/`` only the finished :class:`~.plan.blocking.Blocking`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pullback.schedule.coalesce import on_one_axis
from pullback.schedule.contraction.describe import described
from pullback.schedule.contraction.emit.kernel import kernel
from pullback.schedule.contraction.plan.alternatives import chosen
from pullback.schedule.contraction.plan.blocking import Blocking, Draft
from pullback.schedule.contraction.plan.choice import blocking_of
from pullback.schedule.contraction.plan.finish import finish
from pullback.schedule.contraction.plan.tails import split_tails
from pullback.schedule.contraction.plan.task_order import have_same_order
from pullback.schedule.contraction.problem.bfloat16_pairs import paired
from pullback.schedule.contraction.problem.phases import phases
from pullback.schedule.contraction.problem.problem import Problem
from pullback.schedule.contraction.problem.widen import widened
from pullback.schedule.group import Group
from pullback.tir import Buffer, PrimFunc
from pullback.tir.caches import LINE
from pullback.tir.description import Description
from pullback.tir.expr import nbytes


def _phases(problem: Problem) -> tuple[Problem, ...]:
    return tuple(phases(widened(paired(problem)).merged))


@dataclass(frozen=True, eq=False)
class Contraction:
    """``anchor[o…] = Σ_{k…} a·b``, then elementwise stages of the anchor's shape.

        c[i, j] = Σ_k a[i, k] · b[k, j]      →      for task in parallel(tasks): for k-block: for tile:
        y[i, j] = f(c[i, j], …)                         acc[r, j] = fma(a[r, k], b[k, j], acc[r, j])      in registers
                                                        y[r, j] = f(acc[r, j], …)

    How it is blocked on the nominal machine says whether it is a contraction, and in which order its sums are taken.
    The machine's own way is taken where that is the same.

    Checks: sizes are known, there is one reduction, a sum of products of two factors, and what follows it is
    elementwise in its shape. Products of which each has elements of its own are left to Reduction.
    """

    group: Group
    problem: Problem

    @staticmethod
    def recognize(group: Group) -> Contraction | None:
        problem = Problem.of(group.nominal)
        if problem is None:
            return None
        found, key = (
            Contraction(group, problem),
            ("has blockings", problem.anchor, problem.group.machine, group.fallback),
        )
        if key not in group.of_stages:
            group.of_stages[key] = all(blocking_of(phase) is not None for phase in found.phases)
        return found if group.of_stages[key] else None

    @cached_property
    def phases(self) -> tuple[Problem, ...]:
        return _phases(self.problem)

    @cached_property
    def parts(self) -> tuple[tuple[Problem, Blocking], ...]:
        """What is lowered. Fusion does not ask for it: it only wants to know whether there is something."""
        cuts = [split_tails(phase) for phase in self.phases]
        if self.group is not self.problem.group:
            own = Problem.of(self.group)
            assert own is not None
            found = [split_tails(phase) if blocking_of(phase) is not None else [] for phase in _phases(own)]
            if all(map(have_same_order, cuts, found)):
                cuts = found
        parts: list[tuple[Problem, Draft]] = [part for of_phase in cuts for part in of_phase]
        if self.group.machine.choices:
            find = self.group.machine.choices.find
            parts = [(p, chosen(p, b, find(self.group.digest, k))) for k, (p, b) in enumerate(parts)]
        return finish(parts)

    def lower(self, name: str) -> PrimFunc:
        flat: dict[Buffer, Buffer] = {}
        body = kernel(self.parts, flat)
        body = on_one_axis(body, flat) if flat else body
        group = self.parts[0][0].group
        return group.function(name, body, flat, in_order=self._writes_lines(), late_alone=True)

    def describe(self) -> Description:
        return described(self.group, self.parts)

    def _writes_lines(self) -> bool:
        """Whether vectors of results are whole lines of memory."""
        sizes = {nbytes(output.dtype) for output in self.group.outputs}
        whole = (
            p.extents[b.column] * size % LINE == 0 and p.lanes * size == LINE for p, b in self.parts for size in sizes
        )
        return all(b.column is p.outputs[-1] and b.lane_axis is None for p, b in self.parts) and all(whole)
