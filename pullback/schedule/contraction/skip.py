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
from pullback.schedule.contraction.blocking import Blocking
from pullback.schedule.contraction.problem import Problem
from pullback.schedule.contraction.region import zero_outside
from pullback.tir import PrimExpr, Var, maximum, minimum

_WORTH = 0.1  # of the terms: what skipping must save


@dataclass(frozen=True)
class Skip:
    """The first axis of the sum, ``tap``, matters for a tile only where ``window``, the source's index without the
    tap, plus ``sign`` times the tap comes between ``low`` and ``high``. ``reach``: by how much the index varies
    inside a tile, downwards and upwards."""

    tap: Var
    sign: int
    window: Affine
    low: int
    high: int
    reach: tuple[int, int]
    extent: int

    @staticmethod
    def of(problem: Problem, blocking: Blocking) -> Skip | None:
        """What can be left out of a blocked contraction, if it is worth it."""
        tap = problem.reduced[0] if problem.reduced else None
        if tap is None or blocking.chunks is not None or len(problem.reduced) < 2:
            return None
        for factor in (f for f, way in blocking.ways.items() if way == "region"):
            for d, (window, step) in enumerate(zip(factor.windows or (), factor.steps, strict=False)):
                sign = window.terms.get(tap, 0)
                bounds = zero_outside(problem.group, factor.source, d)
                if abs(sign) != 1 or bounds is None or step != (1, 0) or blocking.column in window.terms:
                    continue
                rest = Affine({v: c for v, c in window.terms.items() if v is not tap}, window.const)
                if any(v not in problem.outputs for v in rest.terms):
                    continue
                moves = [c * (n - 1) for v, n in blocking.rows if (c := rest.terms.get(v, 0))]
                reach = sum(m for m in moves if m < 0), sum(m for m in moves if m > 0)
                found = Skip(tap, sign, rest, *bounds, reach, problem.extents[tap])
                if found._saved(problem, blocking) >= _WORTH:
                    return found
        return None

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
        """The taps that matter for a tile whose first index is ``index``, a number or an expression: from the first to
        the one after the last."""
        least, most = index + self.reach[0], index + self.reach[1]
        return (self.low - most, self.high - least) if self.sign > 0 else (least - self.high + 1, most - self.low + 1)

    def taps(self, place: Mapping[Var, PrimExpr]) -> tuple[PrimExpr, PrimExpr]:
        """(first tap, number of taps) of the tile whose first values of the result's axes are ``place``."""
        first, end = self._range(self.window.at(place))
        first = maximum(first, 0)
        return first, maximum(minimum(end, self.extent) - first, 0)
