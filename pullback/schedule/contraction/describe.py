"""What was chosen for a contraction, in the field's words: of each of its parts what its `Blocking` says.

phase 0 of 2   8 x 32 x k 64; vectors along x; register tile 6 x 16; w packed in panels, dy in place; …
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pullback.schedule.contraction.plan.blocking import Blocking, Packing
from pullback.schedule.contraction.plan.cost import time
from pullback.schedule.contraction.problem.memory import origin
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.schedule.cost import element_cost
from pullback.schedule.describe import arithmetic, named
from pullback.schedule.group import Group
from pullback.tir import pairs
from pullback.tir.description import Description, Nest

PACKING = {
    Packing.DIRECT: "in place",
    Packing.REGION: "packed by each task",
    Packing.PANELS: "packed in panels",
    Packing.TRANSPOSED: "packed transposed",
}


def described(group: Group, parts: Sequence[tuple[Problem, Blocking]]) -> Description:
    """Of a contraction's parts, which are computed one after the other."""
    flops = sum(flops_of(problem) for problem, _ in parts)
    return arithmetic("contraction", group, [nest_of(*part) for part in parts], flops)


def flops_of(problem: Problem) -> int:
    """Of the sums alone; a dot of pairs is two multiply-adds."""
    return (4 if _is_paired(problem) else 2) * problem.work if problem.terms else 0


def nest_of(problem: Problem, blocking: Blocking) -> Nest:
    """Of one part."""
    vector_axis = blocking.column if blocking.lane_axis is None else blocking.lane_axis
    split_k = blocking.split_k or 1
    return Nest(
        named(problem.outputs, [problem.extents[v] for v in problem.outputs]),
        _nanoseconds(problem, blocking),
        named(problem.reduced, [problem.extents[k] for k in problem.reduced]),
        loops="" if blocking.lane_axis is None else "vectors of terms",
        vector_axis=vector_axis.name,
        tile=(blocking.tile.rows, blocking.tile.columns),
        packing=tuple((name_of(problem, f), _packing(blocking, f)) for f in problem.factors),
        split_k=split_k,
        k_block=math.prod(blocking.inner[k] for k in problem.reduced) if blocking.round_count > 1 else None,
        tasks=blocking.task_count * split_k if blocking.threads else 1,
    )


def _packing(blocking: Blocking, factor: Factor) -> str:
    if factor in blocking.widened:
        return "widened"
    private = " by each thread" if factor in blocking.thread_private else ""
    return PACKING[blocking.packing[factor]] + private


def _nanoseconds(problem: Problem, blocking: Blocking) -> float:
    """Of one core, by the cost with which blockings are compared, and not less than its peak."""
    if not problem.terms:
        return epilogue_nanoseconds(problem)
    machine, lanes = problem.group.machine, problem.lanes
    each = machine.pair_dot_ns / lanes if _is_paired(problem) else machine.multiply_add_ns(lanes)
    return each * max(problem.work, time([(problem, blocking)])) + epilogue_nanoseconds(problem)


def epilogue_nanoseconds(problem: Problem) -> float:
    """Of one core, for the elementwise stages on the sums."""
    after = [s for s in problem.group.stages if s is not problem.anchor and s not in problem.before]
    return element_cost(after) * math.prod(problem.extents[v] for v in problem.outputs)


def _is_paired(problem: Problem) -> bool:
    return all(f.dtype == pairs.DTYPE for f in problem.factors)


def name_of(problem: Problem, factor: Factor) -> str:
    """Of the input that a factor reads, or the largest one that it is computed from."""
    tensor, _ = origin(problem.group, factor.source)
    found = problem.group.buffers.get(tensor)
    return factor.source.name if found is None else found.name
