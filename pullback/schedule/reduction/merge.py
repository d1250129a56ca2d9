"""The axes of a program merged: kept ones where every access treats several as one, reduced ones as the sums' order has
it, whatever the accesses."""

from __future__ import annotations

import dataclasses
import math

from pullback.schedule.coalesce import coalesce, join, then
from pullback.schedule.reduction.program import Domain, Program
from pullback.schedule.strides import outermost_first
from pullback.tir import Buffer, BufferLoad, BufferStore, Seq, Stmt, Var
from pullback.tir.visitor import walk


def merge(program: Program, keep: bool = False) -> tuple[Program, dict[Buffer, Buffer]]:
    """An equal program, its kept axes outermost in memory first, and the parameters that have got another shape.

    ``keep``: the domains as they are.
    """
    merging = _Merging(program)
    axes, extents = merging.where_possible(program.axes, program.extents)
    reduced = dict.fromkeys(s.domain for s in program.reduces)
    domains: dict[Domain | None, Domain | None] = {None: None}
    for domain in dict.fromkeys(s.domain for s in program.steps if s.domain is not None):
        if keep:
            domains[domain] = domain
            continue
        merged = merging.in_order(domain) if domain in reduced else merging.where_possible(domain.axes, domain.extents)
        domains[domain] = Domain(*merged, domain.order)
    new = merging.renamed
    steps = [
        dataclasses.replace(step, store=body, domain=domains[step.domain])
        for step, body in zip(program.steps, merging.stores, strict=True)
    ]
    local = tuple(new.get(b, b) for b in program.locals)
    return Program(program.machine, axes, extents, tuple(steps), local), new


class _Merging:
    def __init__(self, program: Program) -> None:
        self.private = {*program.locals, *(s.store.buffer for s in program.steps if s.role == "reduce")}
        self.body = Seq(tuple(s.store for s in program.steps))
        self.renamed: dict[Buffer, Buffer] = {}

    @property
    def stores(self) -> list[BufferStore]:
        """The steps' stores as they are by now."""
        return [s for s in self.body.stmts if isinstance(s, BufferStore)]

    def where_possible(
        self, axes: tuple[Var, ...], extents: tuple[int, ...]
    ) -> tuple[tuple[Var, ...], tuple[int, ...]]:
        """Axes in the order of memory, merged where all accesses allow."""
        extent = dict(zip(axes, extents, strict=True))
        nodes = [
            n for n in walk(self.body) if isinstance(n, (BufferLoad, BufferStore)) and n.buffer not in self.private
        ]
        order = outermost_first(nodes, axes)
        new_axes, new_extents, body, renamed = coalesce(order, [extent[v] for v in order], self.body)
        self.take(body, renamed)
        return tuple(new_axes), tuple(new_extents)

    def in_order(self, domain: Domain) -> tuple[tuple[Var, ...], tuple[int, ...]]:
        """The inner axis of the sums' order, and before it outer ones, as few as possible."""
        axes, extents, order = list(domain.axes), list(domain.extents), domain.order
        while len(axes) > 1 and (order.outer == 1 or extents[-1] < order.inner):
            self.join(axes, extents, len(axes) - 2)
        new_axes, new_extents, body, renamed = coalesce(axes[:-1], extents[:-1], self.body)
        self.take(body, renamed)
        axes, extents = [*new_axes, *axes[-1:]], [*new_extents, *extents[-1:]]
        while order.cut is not None and not order.cut.is_inner and order.cut.size % math.prod(extents[1:-1]):
            self.join(axes, extents, 0)
        return tuple(axes), tuple(extents)

    def join(self, axes: list[Var], extents: list[int], at: int) -> None:
        """The axis ``at`` and the next one become one."""
        joined, body, renamed = join(axes[at], axes[at + 1], extents[at + 1], self.body)
        self.take(body, renamed)
        axes[at : at + 2] = [joined]
        extents[at : at + 2] = [math.prod(extents[at : at + 2])]

    def take(self, body: Stmt, renamed: dict[Buffer, Buffer]) -> None:
        assert isinstance(body, Seq)
        self.body, self.renamed = body, then(self.renamed, renamed)
