"""Figures of machines that several modules use: bytes of caches, and how many threads share work."""

from __future__ import annotations

import math

from pullback.schedule.group import Machine

THREADS = 4  # among which tasks are divided, as a rule
REGION_BYTES = 64 * 1024  # of data that a task copies or computes for itself: it is to stay in the nearer caches
FIRST = 32 * 1024  # bytes of columns that stay in the first cache
SECOND = 384 * 1024  # bytes that stay in the second cache
LARGE = 1024 * 1024  # of a matrix that does not
LEAVES = 1280 * 1024  # of one that leaves the second cache before its rows come again
STREAM = 256 * 1024  # of one that does not stay there beside what else is read
_SETS = 64 * 1024  # bytes from one line of a set of the second cache to the next one, at the least
_WAYS = {64: 16}  # lines that a set holds, by the bytes of a vector: CPUs with narrower ones have smaller caches
_FEW_WAYS = 8


def lines_of_sets(machine: Machine, apart: int) -> int:
    """How many lines of memory, so many bytes apart, stay in the second cache: whole powers of two apart, they compete
    for a few sets of it."""
    return _WAYS.get(machine.vector_bytes, _FEW_WAYS) * _SETS // math.gcd(_SETS, apart)
