"""How many tasks, rounds and packed elements a blocking has. ``inner``: what a task, or a round of it, covers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pullback.schedule.contraction.plan.blocking import Draft, Packing, Packings, packed
from pullback.schedule.contraction.problem.memory import region_shape
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.tir import Var
from pullback.tir.expr import nbytes

FEW_TILES = 3  # of rows, that read the same columns


def region_bytes(packing: Packings, inner: Mapping[Var, int]) -> int:
    """Bytes of all regions of a task."""
    regions = packed(packing, Packing.REGION)
    return sum(math.prod(region_shape(f, inner)) * nbytes(f.source.dtype) for f in regions)


def task_count(problem: Problem, inner: Mapping[Var, int]) -> int:
    """Tasks, if each computes whole sums."""
    return math.prod(-(-problem.extents[v] // inner[v]) for v in problem.outputs)


def tasks_of_rows(problem: Problem, b: Factor, inner: Mapping[Var, int]) -> int:
    """Tasks that read the same of ``b``."""
    return math.prod(-(-problem.extents[v] // inner[v]) for v in problem.outputs if v not in b.axes)


def rows_of(problem: Problem, b: Factor) -> int:
    """Rows that read the same of ``b``."""
    return math.prod(problem.extents[v] for v in problem.outputs if v not in b.axes)


def round_count(problem: Problem, inner: Mapping[Var, int]) -> int:
    """Rounds of a whole sum."""
    return math.prod(-(-problem.extents[k] // inner[k]) for k in problem.reduced)


def part_count(problem: Problem, inner: Mapping[Var, int]) -> int:
    """Tasks, if each round is one."""
    return task_count(problem, inner) * round_count(problem, inner)


def result_count(problem: Problem) -> int:
    return math.prod(problem.extents[v] for v in problem.outputs)


def matrix_count(problem: Problem) -> int:
    """Matrices of each factor: one for each product of a batch or of groups."""
    return math.prod(problem.extents[v] for v in problem.outputs if all(v in f.axes for f in problem.factors))


def copies(problem: Problem, packing: Packings, inner: Mapping[Var, int]) -> dict[Factor, int]:
    """Elements of each region that all tasks pack, in all rounds."""
    regions = packed(packing, Packing.REGION)
    return {f: math.prod(region_shape(f, inner)) * part_count(problem, inner) for f in regions}


def partial_bytes(problem: Problem, draft: Draft) -> int:
    """Bytes of all partial sums."""
    return (draft.split_k or 0) * problem.work // problem.depth * nbytes(problem.anchor.dtype)
