"""Long sums: divided among tasks, and matrices of long lines, which few rows read: what a task takes at a time.

A task keeps its sums from round to round, so that rounds don't change the order of a sum; parts of sums do.
"""

from __future__ import annotations

import math

from pullback.schedule.contraction.plan.blocking import Draft, Packing, packed
from pullback.schedule.contraction.plan.counts import (
    copies,
    matrix_count,
    part_count,
    region_bytes,
    round_count,
    task_count,
    tasks_of_rows,
)
from pullback.schedule.contraction.plan.k_rounds import round_of
from pullback.schedule.contraction.plan.task_order import is_thread_private
from pullback.schedule.contraction.plan.tasks import PARTS, TASKS, moves_with_others, partial_sums
from pullback.schedule.contraction.problem.memory import elements
from pullback.schedule.contraction.problem.problem import Problem
from pullback.schedule.cost import worth_threads
from pullback.tir.caches import LINE
from pullback.tir.expr import nbytes

_LEAST_SPLIT_DEPTH = 512  # terms of a partial sum, at the least
_FEW_COPIES = 8  # tasks that copy the same elements, at the most


def divided(problem: Problem, blocking: Draft) -> Draft:
    """Few and long sums are divided into partial sums."""
    if blocking.has_region:
        return blocking
    tasks = task_count(problem, blocking.inner)
    wanted = min(-(-TASKS // tasks), problem.depth // _LEAST_SPLIT_DEPTH)
    if wanted < 2 or problem.extents[problem.reduced[0]] < wanted:
        return blocking
    outer = problem.reduced[0]
    size = -(-problem.extents[outer] // wanted)
    inner = dict(blocking.inner) | {outer: size}
    return blocking.revised(inner=inner, split_k=round_count(problem, inner))


def split_over_tasks(problem: Problem, blocking: Draft) -> Draft | None:
    """Very long sums are divided among several tasks, where whole ones would leave few tasks as large as the caches
    allow. A task takes its part in rounds. Where a matrix would be copied as a whole, and a few tasks have all rows,
    each round copies its own part."""
    a, b, packing, size = blocking.a, blocking.b, blocking.packing, nbytes(blocking.b.source.dtype)
    leaves = (
        problem.figures.leaves_l2 // 2 if a.is_window else problem.figures.leaves_l2
    )  # rows of a window come again for every tap
    if b.is_window or elements(problem, b) // matrix_count(problem) * size <= leaves:
        return None
    own, inner = {**packing, b: Packing.REGION}, blocking.inner
    is_copied = packing[b] is Packing.PANELS and b.windows is not None and (a.is_window or not blocking.has_region)
    if is_copied:
        parts = partial_sums(problem, blocking.rows, blocking.tile, blocking.column, own, problem.lanes)
        is_copied = (
            tasks_of_rows(problem, b, parts) <= _FEW_COPIES and region_bytes(own, parts) <= problem.figures.region
        )
    if is_copied:
        packing, inner = own, parts
    elif a.is_window or blocking.has_region or problem.depth * blocking.tile.columns * size <= problem.figures.l2:
        return None
    else:
        inner = round_of(problem, blocking, 1, problem.figures.k_block)
    tasks, results = task_count(problem, inner), math.prod(problem.extents[v] for v in problem.outputs)
    few = is_copied and results * nbytes(problem.anchor.dtype) <= problem.figures.streamed
    chunks = min(-(-TASKS // tasks), problem.depth // (_LEAST_SPLIT_DEPTH if few else 2 * _LEAST_SPLIT_DEPTH))
    if chunks < 2 or chunks * tasks < PARTS:
        return None
    return with_split_k(problem, blocking.revised(inner=inner, packing=packing), chunks)


def is_better_split(problem: Problem, whole: Draft, partial: Draft) -> bool:
    """Whether so many tasks copy the same elements that partial sums of a few terms take less, without them."""
    if not (whole.a.is_window or whole.b.is_window) or part_count(problem, partial.inner) < PARTS:
        return False
    return _saved(problem, whole, partial) > problem.work / 10


def _saved(problem: Problem, whole: Draft, partial: Draft) -> int:
    """Multiply-adds in the time that partial sums save of copies."""
    kept = math.prod(problem.extents[v] for v in problem.outputs) * round_count(problem, partial.inner)
    copied = sum(copies(problem, whole).values()) - sum(copies(problem, partial).values())
    return (
        problem.figures.pack if problem.group.machine.vectors else problem.figures.pack_scalar
    ) * copied - problem.figures.spill * kept


def split_for_locality(problem: Problem, whole: Draft, partial: Draft) -> Draft | None:
    """Partial sums, if they take less because each thread then reads what it copied itself, or has something to do."""
    gain = problem.figures.hand_over * _shared(problem, whole) + _idle(problem, whole)
    if not gain or not worth_threads(problem.nanoseconds):
        return None
    partial = in_shorter_rounds(problem, partial)
    found = with_split_k(problem, partial)
    results = math.prod(problem.extents[v] for v in problem.outputs)
    gain -= problem.figures.hand_over_sum * results * (found.split_k or 1) + problem.figures.reread_l2 * _read_again(
        problem, partial
    )
    is_better = _saved(problem, whole, partial) + gain > problem.work / 10
    return found if is_better and (found.split_k or 1) > 1 else None


def _idle(problem: Problem, blocking: Draft) -> int:
    """Multiply-adds in the time that the second of two threads has nothing to do."""
    return problem.work // 2 if task_count(problem, blocking.inner) == 1 else 0


def in_shorter_rounds(problem: Problem, partial: Draft) -> Draft:
    """Rounds that are short enough to be parts for all threads."""
    inner = dict(partial.inner)
    for k in problem.reduced:
        wanted = -(-PARTS // part_count(problem, inner))
        inner[k] = -(-inner[k] // wanted)
    return partial.revised(inner=inner)


def _shared(problem: Problem, blocking: Draft) -> float:
    """Elements that one thread copies and another one reads, about: of factors that are copied as a whole, unless each
    thread copies them for itself, or tasks divide their products or their panels among threads, too."""
    copied = packed(blocking.packing, Packing.PANELS, Packing.TRANSPOSED)
    if blocking.inner[blocking.column] < problem.extents[blocking.column]:
        copied = [f for f in copied if f is not blocking.b]
    copied = [f for f in copied if not is_thread_private(problem, f, divided=False)]
    return sum(elements(problem, f) for f in copied) / matrix_count(problem)


def _read_again(problem: Problem, blocking: Draft) -> int:
    """Elements of windows where they lie that rounds read again, each for some of the taps."""
    windows = [f for f, scheme in blocking.packing.items() if scheme is Packing.DIRECT and f.is_window]
    taps = {k for f in windows for k in problem.reduced if moves_with_others(f, k)}
    passes = math.prod(-(-problem.extents[k] // blocking.inner[k]) for k in taps)
    return sum(elements(problem, f) for f in windows) * (passes - 1)


def in_own_lines(problem: Problem, blocking: Draft) -> Draft:
    """Tasks whose results would lie in the same lines of memory, between one another's, put their sums elsewhere, each
    in lines of its own, and a second loop puts them into their places: cores wait long for lines that another writes
    (the gradient of 47 x 8 x 3 x 3 weights, whose tasks have a row of the kernel each: 63 us, so 45)."""
    outputs, inner = problem.outputs, blocking.inner
    if blocking.split_k is not None or blocking.column is outputs[-1] or round_count(problem, inner) > 1:
        return blocking
    if not worth_threads(problem.nanoseconds):
        return blocking
    shared = next((n for n, v in enumerate(outputs) if inner[v] < problem.extents[v]), 0)
    run = math.prod(problem.extents[v] for v in outputs[shared:]) * nbytes(problem.anchor.dtype)
    is_shared = math.prod(problem.extents[v] for v in outputs[:shared]) > 1 and run < problem.figures.threads * LINE
    return blocking.revised(split_k=1) if is_shared else blocking


def with_split_k(problem: Problem, blocking: Draft, most: int = TASKS) -> Draft:
    """Enough partial sums, of ``most`` at the most, that there are tasks for a few threads."""
    total = round_count(problem, blocking.inner)
    wanted = -(-TASKS // task_count(problem, blocking.inner))
    chunks = max(1, min(total, wanted, most))
    chunks = -(-total // -(-total // chunks))  # the same number of rounds in each, the last one apart
    return blocking.revised(split_k=chunks)
