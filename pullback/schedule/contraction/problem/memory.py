"""How what a contraction reads and writes lies in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.schedule.group import Group
from pullback.schedule.pointwise import buffer_readers
from pullback.te.graph import Lower
from pullback.te.tensor import Tensor
from pullback.tir import Var
from pullback.tir.expr import nbytes
from pullback.tir.static import static
from pullback.tir.visitor import loads, walk

LEAST_RUN = 4  # elements side by side that make up for a transposition in registers
_MASKED = 64  # bytes of vectors that may be stored in part, with gaps, as soon as a whole


def origin(group: Group, source: Tensor) -> tuple[Tensor, list[list[int]]]:
    """The largest input that a tensor is computed from, and which of its axes each axis of the tensor moves."""
    if source.is_placeholder:
        return source, [[d] for d in range(source.ndim)]
    inputs = {buffer: tensor for tensor, buffer in group.buffers.items()}
    reads = loads(Lower(buffer_readers(group)).element(source, source.axes))
    if not reads:
        return source, [[] for _ in source.axes]
    largest = max(reads, key=lambda n: math.prod(static(n.buffer.shape)))
    moved = [[k for k, i in enumerate(largest.indices) if any(n is axis for n in walk(i))] for axis in source.axes]
    return inputs[largest.buffer], moved


def memory_strides(group: Group, source: Tensor) -> list[int]:
    """For each axis of a tensor, the stride of the axis that it moves in the largest input it is computed from."""
    key = ("strides", source)
    if key not in group.known:
        tensor, moved = origin(group, source)
        group.known[key] = [max((math.prod(static(tensor.shape[k + 1 :])) for k in axes), default=0) for axes in moved]
    strides: list[int] = group.known[key]
    return strides


def elements(problem: Problem, factor: Factor) -> int:
    """How many elements of its source a factor reads."""
    if factor.is_window:
        return math.prod(region_shape(factor, problem.extents))
    return math.prod(problem.extents[v] for v in factor.axes)


def distance(problem: Problem, factor: Factor, v: Var) -> int:
    """Elements in memory between the reads at neighbouring values of an axis."""
    if factor.windows is None:
        return abs(factor.strides.get(v, 0))  # 0 along an axis that it does not depend on
    strides = memory_strides(problem.group, factor.source)
    return sum(abs(w.terms.get(v, 0)) * s for w, s in zip(factor.windows, strides, strict=True))


def region_shape(factor: Factor, inner: Mapping[Var, int]) -> tuple[int, ...]:
    """The box of the source that a task reads, in the order of the source's axes."""
    assert factor.windows is not None
    return tuple(1 + sum(abs(c) * (inner[v] - 1) for v, c in w.terms.items()) for w in factor.windows)


def region_order(group: Group, factor: Factor, column: Var) -> list[int]:
    """The source's axes in the order of memory of what it is computed from; one that moves with the vectors last. Those
    of one element come first, so that the innermost is a vector."""
    axes = range(factor.source.ndim)
    strides = memory_strides(group, factor.source)
    moving = {d for d in axes if column in factor.window(d).terms}
    return sorted(axes, key=lambda d: (factor.source.shape[d] != 1, d in moving, -strides[d], d))


def exceeds_l2(problem: Problem, factor: Factor) -> bool:
    """Whether what is read of a factor is more than L2 holds."""
    return elements(problem, factor) * nbytes(factor.source.dtype) > problem.group.machine.second_bytes


def adjacent_rows(problem: Problem, column: Var, counts: Sequence[tuple[Var, int]]) -> int:
    """How many rows of a register tile lie side by side in the result (or evenly apart, as those of one phase of a
    strided gradient), if its columns do not; else 1."""
    run = 1
    if column is problem.outputs[-1] or (problem.has_gaps and problem.group.machine.vector_bytes < _MASKED):
        return run
    for v in reversed(problem.outputs):
        count = dict(counts).get(v, 1)
        run *= count
        if count < problem.extents[v]:
            break
    return run
