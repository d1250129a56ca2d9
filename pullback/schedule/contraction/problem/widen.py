"""Wide factors: numbers of half types become what they are multiplied as once, not at each of their multiplications.

    Σ_k cast(a[…, k]) · cast(b[k, …])   =   Σ_k a'[…, k] · b'[k, …],      a'[i…] = cast(float32, a[i…])

Regions and panels then hold wide numbers. A factor that is read where it lies in memory is copied, if every element of
it is read often enough: whole and beforehand, or, where that copy would leave the second cache, by every task for each
round of its terms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.schedule.coalesce import ravel
from pullback.schedule.contraction.problem.problem import Factor, Problem, zero_unless
from pullback.schedule.elementwise import nest
from pullback.schedule.group import Group, same_axes
from pullback.te.graph import Lower, body_expr
from pullback.te.tensor import Tensor, TensorLoad
from pullback.tir import Buffer, Cast, PrimExpr, Stmt, Var, cast, const, select, store
from pullback.tir.expr import is_half
from pullback.tir.visitor import substitute

_READS = 16  # of each element, at the least, that make up for the copy

Place = Mapping[Var, PrimExpr]


def widened(problem: Problem) -> Problem:
    """The problem whose factors of half types are stages of the type that they are multiplied as."""
    if not any(_is_narrow(f) for f in problem.factors):
        return problem
    first, second = (_widened(f, problem.extents) if _is_narrow(f) else f for f in problem.factors)
    return replace(problem, factors=(first, second))


@dataclass(frozen=True, eq=False)
class Wide:
    """A copy of all that lies in an input. Both have one axis, the order of memory: any shape is long vectors."""

    buffer: Buffer
    source: Tensor
    given: Tensor  # the input
    narrow: Buffer  # and where it lies

    @staticmethod
    def of(group: Group, factor: Factor, flat: dict[Buffer, Buffer]) -> Wide:
        """``flat``: what stands for inputs of the kernel; filled here."""
        source = factor.source
        given, size = _cast_input(source), math.prod(source.shape)  # type: ignore[arg-type]
        assert given is not None
        memory = group.buffers[given]
        narrow = flat.setdefault(memory, Buffer(memory.name, (size,), memory.dtype))
        return Wide(Buffer("wide", (size,), factor.dtype, "workspace"), source, given, narrow)

    def read(self, indices: Sequence[PrimExpr]) -> PrimExpr:
        return self.buffer[ravel(indices, self.source.shape)]

    def copy(self, threads: bool) -> Stmt:
        i = Var("i")
        value = Lower({self.given: lambda _: self.narrow[i]}).element(self.source, self.source.axes)
        return nest([i], [*self.buffer.shape], store(self.buffer, i, value), threads)


def is_worth_a_copy(problem: Problem, factor: Factor) -> bool:
    """Whether a factor that is read where it lies is better converted beforehand."""
    source = factor.source
    is_converted = factor.is_view and not source.is_placeholder and _cast_input(source) is not None
    return is_converted and problem.work >= _READS * math.prod(source.shape)  # type: ignore[arg-type]


def _is_narrow(factor: Factor) -> bool:
    return is_half(factor.source.dtype) and not is_half(factor.dtype)


def _cast_input(source: Tensor) -> Tensor | None:
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
    return Factor.of(dtype, stage, factor.windows, extents, is_view=_cast_input(source) is not None)
