"""Pairs: sums of products of bfloat16 take two terms at a time, where the CPU has an instruction for it.

    Σ_k a[…, k] · b[k, …]   =   Σ_p pair_dot(a2[…, p], b2[p, …]),      a2[…, p] = pair(a[…, 2p], a[…, 2p + 1])

A factor that is contiguous along ``k`` is read as pairs in place; any other is packed. An odd last term is paired
with 0. The axis must be one that both factors have for itself: the channels of a convolution, not its taps.
"""

from __future__ import annotations

import math
from dataclasses import replace

from pullback.schedule.affine import Affine
from pullback.schedule.contraction.problem.problem import Factor, Problem, zero_unless
from pullback.te.graph import body_expr
from pullback.te.tensor import Tensor
from pullback.tir import PrimExpr, Var, const, minimum, select
from pullback.tir.pairs import DTYPE, ELEMENT, pair
from pullback.tir.visitor import substitute, walk


def paired(problem: Problem) -> Problem:
    """The problem over pairs, or as it is: on other machines, of other types, where no axis of the sum allows it."""
    if not problem.group.machine.pair_dot or any(
        f.source.dtype != ELEMENT or f.dtype != "float32" for f in problem.factors
    ):
        return problem
    fitting = [k for k in reversed(problem.reduced) if all(_axis(f, k) is not None for f in problem.factors)]
    if not fitting:
        return problem
    k = min(fitting, key=lambda v: problem.extents[v] % 2)
    if any(
        not _is_view(f, k) and problem.work < problem.figures.pair_reads * math.prod(f.source.shape)
        for f in problem.factors
    ):
        return problem
    p = Var(k.name)
    extents = {v: n for v, n in problem.extents.items() if v is not k} | {p: -(-problem.extents[k] // 2)}
    first, second = (_pairs(f, k, p, problem.extents[k], extents) for f in problem.factors)
    return replace(
        problem,
        factors=(first, second),
        reduced=tuple(p if v is k else v for v in problem.reduced),
        extents=extents,
        place={axis: substitute(e, {k: p * 2}) for axis, e in problem.place.items()},
    )


def _axis(factor: Factor, k: Var) -> int | None:
    """The axis of a source that is ``k`` and nothing else, and whole."""
    found = [d for d, window in enumerate(factor.windows or ()) if k in window.terms]
    if len(found) != 1 or factor.window(found[0]) != Affine({k: 1}):
        return None
    return found[0] if factor.source.shape[found[0]] == factor.extents[k] else None


def _pairs(factor: Factor, k: Var, p: Var, extent: int, extents: dict[Var, int]) -> Factor:
    """The factor whose axis ``k`` has become ``p``, over pairs."""
    source, d = factor.source, _axis(factor, k)
    assert d is not None and factor.windows is not None
    axes = tuple(Var(f"i{n}") for n in range(source.ndim))
    shape = (*source.shape[:d], extents[p], *source.shape[d + 1 :])
    stage = Tensor(f"{source.name}_pairs", shape, DTYPE, axes, _element(source, axes, d, extent))
    windows = [Affine({p: 1}) if n == d else window for n, window in enumerate(factor.windows)]
    return Factor.of(DTYPE, stage, windows, extents, is_view=_is_view(factor, k))


def _is_view(factor: Factor, k: Var) -> bool:
    """Whether its pairs lie in memory as they are."""
    return factor.source.is_placeholder and _axis(factor, k) == factor.source.ndim - 1 and factor.extents[k] % 2 == 0


def _element(source: Tensor, axes: tuple[Var, ...], d: int, extent: int) -> PrimExpr:
    """Elements 2i and 2i + 1 along axis ``d``; what is zero outside some bounds of other axes stays recognizable."""
    places = axes[d] * 2, axes[d] * 2 + 1
    if extent % 2:
        places = places[0], minimum(places[1], extent - 1)
    indices = [(*axes[:d], place, *axes[d + 1 :]) for place in places]
    condition: PrimExpr = const(True, "bool")
    if source.is_placeholder:
        values: list[PrimExpr] = [source[i] for i in indices]
    else:
        condition, body = zero_unless(source)
        if _moves(condition, source.axes[d]):
            condition, body = const(True, "bool"), body_expr(source)
        condition = substitute(condition, dict(zip(source.axes, axes, strict=True)))
        values = [substitute(body, dict(zip(source.axes, i, strict=True))) for i in indices]
    low, high = values
    if extent % 2:
        high = select(axes[d] * 2 + 1 < extent, high, const(0.0, ELEMENT))
    return select(condition, pair(low, high), const(0, DTYPE))


def _moves(expr: PrimExpr, axis: Var) -> bool:
    return any(n is axis for n in walk(expr))
