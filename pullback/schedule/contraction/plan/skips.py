"""Terms that padding makes zero are skipped, where a whole register tile has nothing but zeros.

    dx[y] = Σ_k d[y - k + 4] · w[k],      d[u] = 0 unless 4 ≤ u < 14

The tile with y = 0 and 1 takes part with k = 0 and 1 only. In small images padded by much, as in the gradients of
convolutions without padding, that is a large part of all terms.
"""

from __future__ import annotations

import itertools
import math

from pullback.schedule.affine import Affine
from pullback.schedule.contraction.plan.blocking import Draft, Packing, Skip, packed
from pullback.schedule.contraction.problem.padding import at_or_after, zero_outside
from pullback.schedule.contraction.problem.problem import Problem
from pullback.tir import Var

_WORTH = 0.1  # of all terms: what skipping must save


def skips_of(problem: Problem, draft: Draft) -> dict[Var, Skip]:
    """What can be left out of a blocked contraction, where it is worth it, of the taps that a round takes as a whole.

    The innermost loop stays as it is.
    """
    found: dict[Var, Skip] = {}
    whole = [k for k in problem.reduced[:-1] if draft.inner[k] == problem.extents[k]]
    for factor in packed(draft.packing, Packing.REGION):
        for d, (window, step) in enumerate(zip(factor.windows or (), factor.steps, strict=False)):
            bounds = zero_outside(factor.source, d)
            taps = [k for k in problem.reduced if k in window.terms]
            if bounds is None or len(taps) != 1 or taps[0] not in whole or draft.column in window.terms:
                continue
            rest = Affine({v: c for v, c in window.terms.items() if v is not taps[0]}, window.const)
            if any(v not in problem.outputs for v in rest.terms):
                continue
            low, high = (at_or_after(bound, step) for bound in bounds)
            moves = [c * (n - 1) for v, n in draft.rows if (c := rest.terms.get(v, 0))]
            reach = sum(m for m in moves if m < 0), sum(m for m in moves if m > 0)
            skip = Skip(taps[0], window.terms[taps[0]], rest, low, high, reach, problem.extents[taps[0]])
            if _saved(problem, draft, skip) >= _WORTH:
                found[skip.tap] = skip
    return found


def _saved(problem: Problem, draft: Draft, skip: Skip) -> float:
    """The part of all terms that is left out."""
    steps = dict(draft.rows)
    starts = [range(0, problem.extents[v], steps.get(v, 1)) for v in skip.window.terms]
    kept = [skip.count(dict(zip(skip.window.terms, at, strict=True))) for at in itertools.product(*starts)]
    return 1 - sum(kept) / (skip.extent * math.prod(len(s) for s in starts))
