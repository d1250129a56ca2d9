"""How many tasks, rounds and copied bytes a blocking has."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pullback.schedule.contraction.plan.blocking import Draft, Packing, Packings, packed
from pullback.schedule.contraction.problem.memory import region_shape
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.tir import Var
from pullback.tir.expr import nbytes

FEW_TILES = 3  # of rows, that read the same column or line


def region_bytes(packing: Packings, inner: Mapping[Var, int]) -> int:
    """Bytes of all regions of a task."""
    regions = packed(packing, Packing.REGION)
    return sum(math.prod(region_shape(f, inner)) * nbytes(f.source.dtype) for f in regions)


def task_count(problem: Problem, inner: Mapping[Var, int]) -> int:
    """How many tasks there are, if each computes whole sums."""
    return math.prod(-(-problem.extents[v] // inner[v]) for v in problem.outputs)


def tasks_of_rows(problem: Problem, b: Factor, inner: Mapping[Var, int]) -> int:
    """How many tasks read the same of ``b``."""
    return math.prod(-(-problem.extents[v] // inner[v]) for v in problem.outputs if v not in b.axes)


def round_count(problem: Problem, inner: Mapping[Var, int]) -> int:
    """How many rounds the whole sums take."""
    return math.prod(-(-problem.extents[k] // inner[k]) for k in problem.reduced)


def part_count(problem: Problem, inner: Mapping[Var, int]) -> int:
    """Tasks, if each round is one."""
    return task_count(problem, inner) * round_count(problem, inner)


def matrix_count(problem: Problem) -> int:
    """How many there are of each factor, one for each product of the batch or of the groups."""
    return math.prod(problem.extents[v] for v in problem.outputs if all(v in f.axes for f in problem.factors))


def copies(problem: Problem, blocking: Draft) -> dict[Factor, int]:
    """Elements of each region that all tasks copy, in all rounds."""
    return copies_of(problem, blocking.packing, blocking.inner)


def copies_of(problem: Problem, packing: Packings, inner: Mapping[Var, int]) -> dict[Factor, int]:
    """Likewise, of tasks that are not chosen yet."""
    regions = packed(packing, Packing.REGION)
    return {f: math.prod(region_shape(f, inner)) * part_count(problem, inner) for f in regions}


def partial_bytes(problem: Problem, blocking: Draft) -> int:
    """Of all partial sums, if there are such."""
    return (blocking.split_k or 0) * problem.work // problem.depth * nbytes(problem.anchor.dtype)
