"""Fused parallel loops: the parts of a contraction in one loop over tasks, which threads begin and end once.

    for task in parallel(m): f(task);  for task in parallel(n): g(task)
    →   for task in parallel(2 · max(m, n)): f(task // 2) or g(task // 2), by turns

So the four phases of a strided gradient are one loop, and a thread writes the same images in all of them: their results
share lines of memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from pullback.schedule.contraction.emit.lane_tiles import LaneLowering
from pullback.schedule.contraction.emit.lower import Lowering
from pullback.schedule.contraction.emit.run_tiles import RunLowering
from pullback.schedule.contraction.emit.tap_tiles import TapLowering
from pullback.schedule.contraction.plan.blocking import Blocking
from pullback.schedule.contraction.problem.problem import Problem
from pullback.tir import Allocate, Buffer, For, If, IntImm, Stmt, Var, as_expr, seq
from pullback.tir.visitor import substitute

_UNEVEN = 2  # times as many tasks as another loop has, at the most


def side_by_side(problems: Sequence[tuple[Problem, Blocking]], flat: dict[Buffer, Buffer]) -> Stmt:
    """The loops of all parts, none of which reads what another one writes. ``flat``: inputs of the kernel that have one
    axis in it; filled here."""
    parts = [_lowering(blocking)(problem, blocking, flat) for problem, blocking in problems]
    own = [part.private_copies() for part in parts]
    stages = [_interleaved(_some(stage)) for stage in itertools.zip_longest(*(part.copies() for part in parts))]
    for number, stage in enumerate(itertools.zip_longest(*(part.sums() for part in parts))):
        stages.append(_interleaved(_some(stage), own if number == 0 else ()))
    body = seq(*stages)
    for part in parts:
        body = part.allocated(body)
    return body


def _lowering(blocking: Blocking) -> type[Lowering]:
    if blocking.lane_axis is not None:
        return LaneLowering
    if blocking.taps is not None:
        return TapLowering
    return Lowering if blocking.run is None else RunLowering


def _some(stage: Sequence[Stmt | None]) -> list[Stmt]:
    return [s for s in stage if s is not None]


PrivateCopies = Sequence[tuple[Buffer, Stmt]]


def _interleaved(statements: Sequence[Stmt], own: Sequence[PrivateCopies] = ()) -> Stmt:
    """Parallel loops of about as many tasks as one; else one after the other. ``own``: what each thread packs for
    itself, for each of the statements."""
    counts = [
        s.extent.value
        for s in statements
        if isinstance(s, For) and s.kind == "parallel" and isinstance(s.extent, IntImm)
    ]
    if len(counts) < max(2, len(statements)) or max(counts) > _UNEVEN * min(counts):
        return seq(*(_with(s, own[k] if k < len(own) else ()) for k, s in enumerate(statements)))
    task, most, number = Var("task"), max(counts), len(counts)

    def of(k: int) -> Stmt:
        loop = statements[k]
        assert isinstance(loop, For)
        body = substitute(loop.body, {loop.var: task // number})
        return body if counts[k] == most else If(task // number < counts[k], body)

    body, turn = of(number - 1), task % number
    for k in range(number - 2, -1, -1):
        body = If(turn.equal(k), of(k), body)
    return _with(For(task, as_expr(most * number), body, "parallel"), [copy for copies in own for copy in copies])


def _with(statement: Stmt, copies: PrivateCopies) -> Stmt:
    """A loop over tasks of which each begins with these copies."""
    if not copies:
        return statement
    assert isinstance(statement, For)
    body = seq(*(copy for _, copy in copies), statement.body)
    for buffer, _ in copies:
        body = Allocate(buffer, body)
    return replace(statement, body=body)
