"""What the kernels of a function compute and move, and for which layer, for profiles and summaries.

A compiled function no longer knows its loops. They are made again when somebody asks: no code is generated.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from pullback.driver.artifact import Layout
from pullback.driver.pipeline import plan_function
from pullback.ir.module import IRModule
from pullback.ir.node import Span
from pullback.relax.convention import BACKBONE
from pullback.relax.expr import Function
from pullback.relax.transform.plan_memory import Plan
from pullback.runtime.clocks import clock_offsets
from pullback.runtime.ranks import current
from pullback.runtime.report import Chosen, Report
from pullback.target import Target
from pullback.tir import For, HostCall, If, IntImm, KernelCall, Recur, Seq, Stmt, While
from pullback.tir.count import count
from pullback.tir.description import GFLOPS, Description, description_of
from pullback.tir.visitor import walk

PROFILE_RUNS = 5


@dataclass(frozen=True)
class Work:
    """One kernel call. ``layer``: the name that :class:`Layers` has for its op, None where that is in no layer.
    ``flops`` and ``bytes`` are None where they depend on values in memory, ``description`` where no schedule made it.
    """

    kernel: str
    layer: str | None
    flops: int | None
    bytes: int | None
    description: Description | None = None

    def chosen(self, threads: int, fork_join: float) -> Chosen | None:
        """What the schedule chose, and the estimate for so many threads. ``fork_join``: nanoseconds that handing tasks
        to them takes."""
        found = self.description
        if found is None:
            return None
        return Chosen(found.choices, found.nanoseconds_of(threads, fork_join) / 1000, found.unit == GFLOPS)


class Layers:
    """Names for places in the source: of code in a ``forward`` the module's dotted name, of a line of a script the last
    variable that is computed in it, in the backbone or else in the function itself."""

    def __init__(self, module: IRModule, name: str) -> None:
        self._names: dict[tuple[str, int], str] = {}
        function = module.functions.get(BACKBONE, module[name])
        for binding in function.bindings if isinstance(function, Function) else ():
            span = binding.value.span
            if span is not None:
                self._names[span.file, span.line] = binding.var.name

    def of(self, span: Span | None) -> str | None:
        """The name for a place; None for one that is no layer's."""
        if span is None or span.layer is not None:
            return None if span is None else span.layer
        return self._names.get((span.file, span.line))


def planned_work(
    module: IRModule, name: str, sizes: dict[str, int], target: Target
) -> tuple[Layout, tuple[Work, ...]]:  # fmt: skip
    """How a function is laid out in memory, and its kernel calls in order."""
    plan = plan_function(module, name, sizes, target)
    layers = Layers(module, name)
    calls = [node.name for node in walk(plan.host.body) if isinstance(node, (KernelCall, HostCall))]
    totals_of = functools.cache(functools.partial(counted, plan))
    work = []
    for kernel, span in zip(calls, plan.spans, strict=True):
        totals = totals_of(kernel)
        flops, moved = (None, None) if totals is None else totals
        scheduled = plan.kernels.get(kernel)
        description = None if scheduled is None else description_of(scheduled)
        work.append(Work(kernel, layers.of(span), flops, moved, description))
    return Layout.of(plan), tuple(work)


def of_all_ranks(report: Report) -> Report:
    """The reports of all ranks as one, on rank 0's clock. Collective."""
    ranks = current()
    own = replace(report, begin=report.begin + clock_offsets(ranks)[ranks.rank] / 1000)
    return Report.together(ranks.exchange(own))


def counted(plan: Plan, name: str) -> tuple[int, int] | None:
    """FLOPs and bytes of a kernel, or of a host function that runs a branch or a loop."""
    if name in plan.kernels:
        counted = count(plan.kernels[name])
        return None if counted is None else (counted.flops, counted.bytes_read + counted.bytes_written)
    return _of_statement(plan, plan.inner[name].body)


def _of_statement(plan: Plan, node: Stmt | None) -> tuple[int, int] | None:
    """Of two branches the dearer one counts; of a loop whose steps depend on values in memory nothing is known, nor of
    a recursive function."""
    if isinstance(node, (KernelCall, HostCall)):
        return counted(plan, node.name)
    if isinstance(node, (While, Recur)):
        return None
    if not isinstance(node, (Seq, For, If)):
        return 0, 0
    if isinstance(node, If):
        inner: tuple[Stmt | None, ...] = (node.then, node.otherwise)
    else:
        inner = node.stmts if isinstance(node, Seq) else (node.body,)
    found = [_of_statement(plan, s) for s in inner]
    parts = [part for part in found if part is not None]
    if len(parts) < len(found):
        return None
    if isinstance(node, If):
        return max(parts)
    times = node.extent if isinstance(node, For) else IntImm(1)
    if not isinstance(times, IntImm):
        return None
    return times.value * sum(flops for flops, _ in parts), times.value * sum(moved for _, moved in parts)
