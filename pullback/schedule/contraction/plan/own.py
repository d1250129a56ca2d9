"""Copies that each thread makes for itself: of what every task reads, and is soon copied.

    for task in parallel(n):
        panels = …                      the same in every task, so a thread does it once (codegen/own_copies.py)
        …

A line that another core wrote comes slowly, and so does the right to write one that another core has read since. Where
all threads read all of a copy, it takes less to make it anew in each of them.
"""

from __future__ import annotations

from pullback.schedule.contraction.plan.blocking import THREADS
from pullback.schedule.contraction.problem.memory import elements
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.schedule.cost import element_cost
from pullback.tir.expr import nbytes

_BYTES = 128 * 1024  # of a copy at the most, and
_PART = 8  # of the second cache
_COPIED = 0.2  # nanoseconds that an element takes to be copied
_PASSED = 0.5  # and to get to another thread (measured on emeraldrapids: 8 ns for a line of 16)
_BEGUN = 700.0  # nanoseconds that a loop among threads takes to begin and to end


def is_own(problem: Problem, factor: Factor, divided: bool) -> bool:
    """Whether threads had better copy a factor each for itself; ``divided``: a thread reads a part of it, mostly."""
    count = elements(problem, factor)
    if count * nbytes(factor.source.dtype) > min(_BYTES, problem.group.machine.second_bytes // _PART):
        return False
    copy = count * (_COPIED + (0.0 if factor.is_input else element_cost(problem.before)))
    passed = 0.0 if divided else count * _PASSED
    return copy < copy / THREADS + passed + _BEGUN
