"""What the kernels of a function compute and move, for its profile.

A compiled function no longer knows its loops. They are made again when a profile is asked for: no code is generated.
"""

from __future__ import annotations

from pullback.driver.pipeline import plan_function
from pullback.ir.module import IRModule
from pullback.target import Target
from pullback.tir import KernelCall
from pullback.tir.count import count
from pullback.tir.visitor import walk

PROFILE_RUNS = 5


def kernel_counts(
    module: IRModule, name: str, sizes: dict[str, int], target: Target
) -> list[tuple[int, int] | None]:  # fmt: skip
    """FLOPs and bytes of each kernel call, in order; None where they depend on values in memory."""
    plan = plan_function(module, name, sizes, target)
    counts = {kernel: count(function) for kernel, function in plan.kernels.items()}
    calls = [counts[node.name] for node in walk(plan.host.body) if isinstance(node, KernelCall)]
    return [None if c is None else (c.flops, c.bytes_read + c.bytes_written) for c in calls]
