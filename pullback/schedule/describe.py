"""What schedules share to describe what they chose: `Description` of ``tir/description.py``, with its estimate.

The estimate is the longer of two times of one core: that of the arithmetic, by the costs with which schedules are
compared, and that in which everything the kernel reads and writes comes once from the cache, or the memory, that holds
all of it (`Figures.line_ns`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pullback.schedule.group import Group, bytes_of
from pullback.tir import For, IntImm, PrimExpr, Stmt, Var
from pullback.tir.description import GFLOPS, GIGABYTES, Description, Nest
from pullback.tir.visitor import statements


def arithmetic(schedule: str, group: Group, nests: Iterable[Nest], flops: int) -> Description:
    """Of a kernel that multiplies and adds: ``flops``, of its sums alone. Nests that together would be faster than
    memory take as long as that, each in its proportion."""
    found = tuple(nests)
    total, least = sum(nest.nanoseconds for nest in found), group.machine.memory_ns(moved_bytes(group))
    if total < least:
        share = [nest.nanoseconds / total if total else 1 / len(found) for nest in found]
        found = tuple(replace(nest, nanoseconds=least * part) for nest, part in zip(found, share, strict=True))
    return Description(schedule, found, flops, GFLOPS)


def moving(schedule: str, group: Group, nests: Iterable[Nest]) -> Description:
    """Of a kernel that moves memory, and computes meanwhile."""
    return Description(schedule, tuple(nests), moved_bytes(group), GIGABYTES)


def moved_bytes(group: Group) -> int:
    """Of all inputs and outputs, each once."""
    return sum(map(bytes_of, group.buffers.values()))


def is_static(group: Group) -> bool:
    """Whether all sizes are known: else nothing is estimated, nor described."""
    sizes = [s for tensor in (*group.inputs, *group.outputs, *group.stages) for s in tensor.shape]
    return all(isinstance(size, int) for size in sizes)


def named(axes: Sequence[Var], extents: Sequence[int | PrimExpr]) -> tuple[tuple[str, int], ...]:
    """Loop axes as a `Nest` has them."""
    return tuple((v.name, n) for v, n in zip(axes, extents, strict=True) if isinstance(n, int))


def is_vectorized(body: Stmt) -> bool:
    """Whether there are vectorized loops."""
    return any(isinstance(n, For) and n.kind == "vectorized" for n in statements(body))


def tasks_of(body: Stmt) -> int:
    """Iterations of the parallel loops, all together; 1 where there are none."""
    loops = [n for n in statements(body) if isinstance(n, For) and n.kind == "parallel"]
    return max(1, sum(n.extent.value for n in loops if isinstance(n.extent, IntImm)))
