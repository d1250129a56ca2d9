"""Random: elementwise work on random bits. A block of them is computed once for all the numbers that it holds.

    for g in parallel(groups):
        for l in vectorized(16):
            for w in unrolled(4):
                out[64 * g + 16 * w + l] = f(word w of block 16 * g + l, x[64 * g + 16 * w + l], …)

``te/random.py`` says which element takes which word. The words of a block are one expression but for w, so that
generated code computes what they share once. The runs of a rank's shard begin with other blocks. Where another axis
is innermost in memory, that one is vectorized. Other schedules take no random bits, and this one none along rows that
are no whole groups: such a kernel reads them, or a mask made of them, from memory. That takes less time than to draw
again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from pullback.schedule.affine import affine
from pullback.schedule.coalesce import coalesce
from pullback.schedule.cost import element_cost, is_costly, worth_threads
from pullback.schedule.describe import moved_bytes, moving, named, tasks_of
from pullback.schedule.group import Group, same_axes
from pullback.schedule.pointwise import buffer_readers, outer_loops, point
from pullback.te.graph import Lower, Reader
from pullback.te.random import LANES, Runs, draw_of, draws, group_size, number, runs
from pullback.te.tensor import Tensor
from pullback.tir import Buffer, BufferLoad, Call, For, Let, PrimExpr, PrimFunc, Stmt, Var, as_expr, cast, seq
from pullback.tir.description import Description, Nest
from pullback.tir.philox import INTRINSIC
from pullback.tir.static import is_static, static
from pullback.tir.visitor import Mutator, loads, substitute

_MOST = 2**32  # elements whose blocks are counted in 32 bits


@dataclass(frozen=True, eq=False)
class Random:
    """Stages of one shape, some of which draw. ``body`` computes the outputs at the point ``axes``, as they lie in
    memory. It reads the bits of the stages in ``drawn`` from buffers that do not exist, at the axes in the order in
    which elements are numbered: ``numbered``. Of these the last has whole groups, if there are others.

        out[i] = f(bits(key, i), x[i])       →      for group in parallel: for lane in vectorized(16):
                                                        four words of one block: out[…] = f(word, x[…])

    Checks: sizes are known, all outputs and all draws have one shape and kind of bits, and all draws are numbered along
    the same axes. Rows of several axes have whole groups. Nothing reduces.
    """

    group: Group
    axes: list[Var]
    extents: dict[Var, int]
    body: Stmt
    drawn: Mapping[Buffer, Tensor]
    renamed: Mapping[Buffer, Buffer]

    @staticmethod
    def recognize(group: Group) -> Random | None:
        shape, stages = group.outputs[0].shape, [s for s in group.stages if draws(s)]
        if not stages or group.reductions or any(o.shape != shape for o in group.outputs):
            return None
        if not is_static(shape) or math.prod(shape) > _MOST:
            return None
        if len({s.dtype for s in stages}) > 1 or any(s.shape != shape and is_costly(s) for s in group.stages):
            return None
        places, readers = {}, buffer_readers(group)
        for stage in stages:
            order = _numbering(stage) if stage.shape == shape else None
            if order is None:
                return None
            places[stage], readers[stage] = _bits_buffer(stage, order)
        axes = [Var(f"i{k}") for k in range(len(shape))]
        body = point(group, [s for s in group.stages if s.shape == shape], axes, readers)
        axes, extents, body, renamed = coalesce(axes, list(shape), body)
        drawn = {renamed.get(b, b): s for s, b in places.items()}
        result = Random(group, axes, dict(zip(axes, extents, strict=True)), body, drawn, renamed)
        return result if result.is_whole else None

    @cached_property
    def numbered(self) -> tuple[Var, ...]:
        indices = next(n.indices for n in loads(self.body) if n.buffer in self.drawn)
        return tuple(v for v in indices if isinstance(v, Var))

    @property
    def is_whole(self) -> bool:
        """Whether all bits are read at the same place, along whole groups or along the only axis."""
        reads = [n.indices for n in loads(self.body) if n.buffer in self.drawn]
        same = set(self.numbered) == set(self.axes) and all(same_axes(i, self.numbered) for i in reads)
        return same and (len(self.axes) < 2 or self.extents[self.numbered[-1]] % self.size == 0)

    @property
    def size(self) -> int:
        """The elements of a group."""
        return group_size(next(iter(self.drawn)).dtype)

    def lower(self, name: str) -> PrimFunc:
        return self.group.function(name, self.loops, self.renamed)

    def describe(self) -> Description:
        axes = named(self.axes, list(self.extents.values()))
        nanoseconds = max(self.cost, self.group.machine.memory_ns(moved_bytes(self.group)))
        last = axes[-1][0] if axes else None
        how = f"blocks of {self.size} random numbers"
        nest = Nest(axes, nanoseconds, loops=how, vector_axis=last, tasks=tasks_of(self.loops))
        return moving("random", self.group, [nest])

    @property
    def cost(self) -> float:
        """Nanoseconds of one core."""
        return element_cost(self.group.stages) * math.prod(self.extents.values())

    @cached_property
    def loops(self) -> Stmt:
        lower = Lower(buffer_readers(self.group))
        keys: dict[Buffer, _Keys] = {}
        lets: list[tuple[Var, PrimExpr]] = []
        for buffer, stage in self.drawn.items():  # what is the same for all elements stands outside of the loops
            own, first = runs(stage), None
            values = [lower.expr(a) for a in draw_of(stage).args[2 if own is None else 3 :]]
            words = tuple(Var(f"key{k}", "uint32") for k in range(len(values)))
            lets.extend(zip(words, values, strict=True))
            if own is not None:
                first = Var("first", "uint64")
                lets.append((first, lower.expr(own.first)))
                own = replace(own, first=first)
            keys[buffer] = _Keys(words, own)
        zero = as_expr(0)
        body = seq(*self.nests(keys)) if self.axes else _Draw(keys, zero, zero, zero).stmt(self.body)
        for var, value in reversed(lets):
            body = Let(var, value, body)
        return body

    def nests(self, keys: Mapping[Buffer, _Keys]) -> Iterator[Stmt]:
        """The loops over whole groups, then over the rest."""
        *before, along = self.numbered
        whole, rest = divmod(self.extents[along], self.size)
        row: PrimExpr = as_expr(0)
        for axis in before:
            row = row * self.extents[axis] + axis

        def at(group: PrimExpr, word: PrimExpr, lane: PrimExpr) -> Stmt:
            drawn = _Draw(keys, row * whole + group, lane, word).stmt(self.body)
            return substitute(drawn, {along: group * self.size + word * LANES + lane})

        if whole:
            group, word, lane = Var("group"), Var("word"), Var("lane")
            words = For(word, as_expr(self.size // LANES), at(group, word, lane), "unrolled")
            yield self.whole_groups(group, whole, lane, words)
        for k in range(-(-rest // LANES)):  # along the only axis
            lane = Var("lane")
            yield For(lane, as_expr(min(LANES, rest - k * LANES)), at(as_expr(whole), as_expr(k), lane), "vectorized")

    def whole_groups(self, group: Var, count: int, lane: Var, body: Stmt) -> Stmt:
        """The loops in the order of memory, those over the groups and their lanes in place of the numbered axis."""
        axes: list[Var] = []
        for axis in self.axes:
            axes.extend((group, lane) if axis is self.numbered[-1] else (axis,))
        extents = self.extents | {group: count, lane: LANES}
        inner = For(axes[-1], as_expr(extents[axes[-1]]), body, "vectorized")
        return outer_loops(axes[:-1], [extents[a] for a in axes[:-1]], inner, worth_threads(self.cost))


@dataclass(frozen=True)
class _Keys:
    """What the numbers of a stage have in common: the last words of the counter, and the key. With the ``runs`` of a
    shard, the counter's second word is not among them."""

    words: tuple[Var, ...]
    runs: Runs | None


class _Draw(Mutator):
    """Replaces reads of the bits by a word of a block, that of a lane of a group."""

    def __init__(self, keys: Mapping[Buffer, _Keys], group: PrimExpr, lane: PrimExpr, word: PrimExpr) -> None:
        super().__init__()
        self.keys, self.group, self.lane, self.word = keys, group, lane, cast("uint32", word)
        self.block = cast("uint32", group * LANES + lane)

    def _expr(self, node: PrimExpr) -> PrimExpr:
        if isinstance(node, BufferLoad) and node.buffer in self.keys:
            keys = self.keys[node.buffer]
            return Call(INTRINSIC, (self.word, *self.counter(keys.runs), *keys.words), node.dtype)
        return super()._expr(node)

    def counter(self, runs: Runs | None) -> tuple[PrimExpr, ...]:
        """The lower words of the block's number: as the group's is a multiple of the lanes, no lane has a carry."""
        if runs is None:
            return (self.block,)
        block = cast("uint64", self.group * LANES) + runs.first
        if runs.skip:
            block = block + cast("uint64", self.group // runs.groups) * runs.skip
        return cast("uint32", block) + cast("uint32", self.lane), cast("uint32", block >> 32)


def _numbering(stage: Tensor) -> list[int] | None:
    """The places of the stage's axes in the order in which its elements are numbered, if their numbers are row-major
    in some order."""
    shape = static(stage.shape)
    found = affine(number(stage), dict(zip(stage.axes, shape, strict=True)))
    if found is None:
        return None
    order = sorted(range(stage.ndim), key=lambda k: -found.terms.get(stage.axes[k], 0))
    step = 1
    for k in sorted(order, key=lambda k: found.terms.get(stage.axes[k], 0)):
        if stage.shape[k] != 1:
            if found.terms.get(stage.axes[k]) != step:
                return None
            step *= shape[k]
    return order


def _bits_buffer(stage: Tensor, order: list[int]) -> tuple[Buffer, Reader]:
    """A buffer that stands for the bits, its axes in the order of numbers, and how it is read."""
    buffer = Buffer(stage.name, tuple(stage.shape[k] for k in order), stage.dtype)
    return buffer, lambda indices: buffer[tuple(indices[k] for k in order)]
