"""Widening: numbers of half types are converted to the type of their products once, not at each multiplication.

    Σ_k cast(a[…, k]) · cast(b[k, …])   =   Σ_k a'[…, k] · b'[k, …],      a'[i…] = cast(float32, a[i…])

Regions and panels then hold wide numbers. A factor that is read in place is copied if every element of it is read often
enough: as a whole beforehand, or, where that copy would leave L2, by every task for each round of its terms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from pullback.schedule.contraction.problem.problem import Factor, Problem, zero_unless
from pullback.schedule.group import same_axes
from pullback.te.graph import body_expr
from pullback.te.tensor import Tensor, TensorLoad
from pullback.tir import Cast, Var, cast, const, select
from pullback.tir.expr import is_half
from pullback.tir.visitor import substitute


def widened(problem: Problem) -> Problem:
    """The problem whose factors of half types are stages of the type that they are multiplied as."""
    if not any(_is_narrow(f) for f in problem.factors):
        return problem
    first, second = (_widened(f, problem.extents) if _is_narrow(f) else f for f in problem.factors)
    return replace(problem, factors=(first, second))


def pays_to_widen(problem: Problem, factor: Factor) -> bool:
    """Whether a factor that is read in place is better converted beforehand."""
    source = factor.source
    is_converted = factor.is_view and not source.is_placeholder and cast_input(source) is not None
    size = math.prod(int(n) for n in source.shape)
    return is_converted and problem.work >= problem.figures.widen_reads * size


def _is_narrow(factor: Factor) -> bool:
    return is_half(factor.source.dtype) and not is_half(factor.dtype)


def cast_input(source: Tensor) -> Tensor | None:
    """The input whose elements a source casts, perhaps several times, and leaves where they are."""
    while not source.is_placeholder:
        value = body_expr(source)
        while isinstance(value, Cast):
            value = value.value
        if not isinstance(value, TensorLoad) or not same_axes(value.indices, source.axes):
            return None
        source = value.tensor
    return source


def _widened(factor: Factor, extents: Mapping[Var, int]) -> Factor:
    source, dtype = factor.source, factor.dtype
    assert factor.windows is not None
    axes = tuple(Var(f"i{n}") for n in range(source.ndim))
    if source.is_placeholder:
        value = cast(dtype, source[axes])
    else:
        condition, body = (substitute(e, dict(zip(source.axes, axes, strict=True))) for e in zero_unless(source))
        value = select(condition, cast(dtype, body), const(0, dtype))
    stage = Tensor(f"{source.name}_wide", source.shape, dtype, axes, value)
    return Factor.of(dtype, stage, factor.windows, extents, is_view=cast_input(source) is not None)
