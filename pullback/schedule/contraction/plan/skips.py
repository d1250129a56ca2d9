"""Terms that padding makes zero are left out, where a whole register tile has nothing but zeros.

    dx[y] = Σ_k d[y - k + 4] · w[k],      d[u] = 0 unless 4 ≤ u < 14

The tile with y = 0 and 1 takes part with k = 0 and 1 only. In small images padded by much, as in the gradients of
convolutions without padding, that is a large part of all terms.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pullback.schedule.affine import Affine
from pullback.schedule.contraction.plan.blocking import Blocking
from pullback.schedule.contraction.problem.padding import at_or_after, zero_outside
from pullback.schedule.contraction.problem.problem import Problem
from pullback.tir import PrimExpr, Var, maximum, minimum

_WORTH = 0.1  # of the terms: what skipping must save


@dataclass(frozen=True)
class Skip:
    """An axis of the sum, ``tap``, matters for a tile only where ``window``, the source's place without the tap, plus
    ``step`` times the tap comes between ``low`` and ``high``. ``reach``: by how much the place varies inside a tile,
    downwards and upwards."""

    tap: Var
    step: int
    window: Affine
    low: int
    high: int
    reach: tuple[int, int]
    extent: int

    @staticmethod
    def of(problem: Problem, blocking: Blocking) -> dict[Var, Skip]:
        """What can be left out of a blocked contraction, where it is worth it, of the taps that a round takes as a
        whole; the innermost loop stays as it is."""
        found: dict[Var, Skip] = {}
        whole = [k for k in problem.reduced[:-1] if blocking.inner[k] == problem.extents[k]]
        for factor in (f for f, way in blocking.ways.items() if way == "region"):
            for d, (window, step) in enumerate(zip(factor.windows or (), factor.steps, strict=False)):
                bounds = zero_outside(factor.source, d)
                taps = [k for k in problem.reduced if k in window.terms]
                columns = {blocking.column, blocking.taps} & window.terms.keys()
                if bounds is None or len(taps) != 1 or taps[0] not in whole or columns:
                    continue
                rest = Affine({v: c for v, c in window.terms.items() if v is not taps[0]}, window.const)
                if any(v not in problem.outputs for v in rest.terms):
                    continue
                low, high = (at_or_after(bound, step) for bound in bounds)
                moves = [c * (n - 1) for v, n in blocking.rows if (c := rest.terms.get(v, 0))]
                reach = sum(m for m in moves if m < 0), sum(m for m in moves if m > 0)
                skip = Skip(taps[0], window.terms[taps[0]], rest, low, high, reach, problem.extents[taps[0]])
                if skip._saved(problem, blocking) >= _WORTH:
                    found[skip.tap] = skip
        return found

    def _saved(self, problem: Problem, blocking: Blocking) -> float:
        """The part of all terms that is left out."""
        steps = dict(blocking.rows)
        starts = [range(0, problem.extents[v], steps.get(v, 1)) for v in self.window.terms]
        kept = [self._count(dict(zip(self.window.terms, at, strict=True))) for at in itertools.product(*starts)]
        return 1 - sum(kept) / (self.extent * math.prod(len(s) for s in starts))

    def _count(self, place: Mapping[Var, int]) -> int:
        first, end = self._range(self.window.const + sum(c * place[v] for v, c in self.window.terms.items()))
        return max(0, min(end, self.extent) - max(first, 0))

    def _range(self, index: Any) -> tuple[Any, Any]:
        """The taps that matter for a tile whose first place is ``index``, a number or an expression: from the first to
        the one after the last."""
        before, after = self.low - (index + self.reach[1]), self.high - 1 - (index + self.reach[0])
        least, most = (before, after) if self.step > 0 else (-1 * after, -1 * before)
        step = abs(self.step)
        return (least + (step - 1)) // step, most // step + 1

    def taps(self, place: Mapping[Var, PrimExpr]) -> tuple[PrimExpr, PrimExpr]:
        """(first tap, number of taps) of the tile whose first values of the result's axes are ``place``."""
        first, end = self._range(self.window.at(place))
        first = maximum(first, 0)
        return first, maximum(minimum(end, self.extent) - first, 0)
