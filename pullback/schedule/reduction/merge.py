"""The axes of a program in the order of memory, and merged where every access treats several as one."""

from __future__ import annotations

import dataclasses

from pullback.schedule.coalesce import coalesce
from pullback.schedule.reduction.program import Domain, Program
from pullback.schedule.strides import outermost_first
from pullback.tir import Buffer, BufferLoad, BufferStore, Seq, Var
from pullback.tir.visitor import walk

Axes = tuple[tuple[Var, ...], tuple[int, ...]]


def merge(program: Program) -> tuple[Program, dict[Buffer, Buffer]]:
    """An equal program, outermost axes first, and the kernel's parameters that have got another shape."""
    merging = _Merging(program)
    axes, extents = merging.merged(program.axes, program.extents)
    old = dict.fromkeys(s.domain for s in program.steps if s.domain is not None)
    domains = {d: Domain(*merging.merged(d.axes, d.extents)) for d in old}
    new = merging.renamed
    steps = []
    for step, body in zip(program.steps, merging.body.stmts, strict=True):
        domain = domains[step.domain] if step.domain is not None else None
        steps.append(dataclasses.replace(step, store=body, domain=domain))  # type: ignore[arg-type]
    local = tuple(new.get(b, b) for b in program.locals)
    return Program(program.machine, axes, extents, tuple(steps), local), new


class _Merging:
    def __init__(self, program: Program) -> None:
        self.private = {*program.locals, *(s.store.buffer for s in program.steps if s.role == "reduce")}
        self.body = Seq(tuple(s.store for s in program.steps))
        self.renamed: dict[Buffer, Buffer] = {}

    def merged(self, axes: tuple[Var, ...], extents: tuple[int, ...]) -> Axes:
        extent = dict(zip(axes, extents, strict=True))
        nodes = [
            n for n in walk(self.body) if isinstance(n, (BufferLoad, BufferStore)) and n.buffer not in self.private
        ]
        order = outermost_first(nodes, axes)
        new_axes, new_extents, body, renamed = coalesce(order, [extent[v] for v in order], self.body)
        assert isinstance(body, Seq)
        self.body = body
        again = {old: renamed.get(new, new) for old, new in self.renamed.items()}
        self.renamed = {old: new for old, new in renamed.items() if old not in self.renamed.values()} | again
        return tuple(new_axes), tuple(new_extents)  # type: ignore[arg-type]
