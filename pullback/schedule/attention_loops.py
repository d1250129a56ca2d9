"""The loops of attention: scores exist for one block of query rows at a time, in the local memory of a task.

    for task in parallel(batch · heads · row blocks):
        queries = the block's rows, turned and scaled
        for block of keys that some row sees:
            p[j, i] = key[j]·queries[i], bias, mask                 lanes are rows: maxima and sums need no shuffles
            peak = max(peak, p); p = exp(p - peak); total += Σ_j p  earlier sums times exp(old peak - peak)
            context[i] += Σ_j p[j, i]·value[j]
        out[i] = context[i] / total[i]

The backward kernel makes p anew, for all keys at once, and from it dquery and the block's parts of dkey and dvalue,
which it adds to the task's own sums; a second loop adds up those of the tasks, if there are several. Online softmax:
Milakov & Gimelshein 2018; in blocks: Dao et al. 2022. Keys and values of half types, each of which many rows
multiply, are copied as floats first. Blocks depend on the sizes and the vector width only, and threads
divide the tasks, so the order of each sum is fixed. Keys that a causal mask hides from a whole block are not visited.
"""

from __future__ import annotations

import functools
import itertools
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from pullback.schedule.cost import NANOSECONDS_PER_FMA, TRANSCENDENTAL, worth_threads
from pullback.schedule.describe import arithmetic
from pullback.schedule.group import Group
from pullback.schedule.microkernel import Element, Finish, Product, cover
from pullback.schedule.pointwise import buffer_readers, tasks
from pullback.schedule.tiles import Reads, Tile, choose_tile, slowness
from pullback.schedule.transpose import copied_across
from pullback.te.attention import LOWEST, Attention, nonzero
from pullback.te.graph import Lower
from pullback.te.tensor import Tensor
from pullback.tir import (
    Allocate,
    Buffer,
    For,
    If,
    Let,
    PrimExpr,
    Stmt,
    Var,
    as_expr,
    call,
    cast,
    const,
    loop,
    maximum,
    minimum,
    seq,
    store,
)
from pullback.tir.caches import FIRST
from pullback.tir.description import Description, Nest
from pullback.tir.expr import nbytes
from pullback.tir.static import static

_ROWS = 2  # of a block, in vectors
_SCORES_BYTES = FIRST  # of p
_HIGHEST_TILE = 16  # the last tile of a run-time number of keys may reach so far beyond
_LOCAL_BYTES = 64 * 1024  # of one local buffer, at most
_LEAST_TASKS = 16  # of the backward kernel, if each gets
_LEAST_ROWS = 64  # rows
_READS = 16  # of each key, at the least, that make up for a copy of it


class _Loops(ABC):
    """What both directions share: blocks, and the scores of a block of rows."""

    def __init__(self, group: Group, attention: Attention) -> None:
        self.group, self.attention, self.dtype = group, attention, attention.dtype
        self.batch, self.length, self.heads, self.size = static(attention.query.shape)
        _, self.keys, self.key_heads, self.value_size = static(attention.value.shape)
        self.sharing = self.heads // self.key_heads  # query heads that read one key head
        self.lanes = max(1, group.machine.vector_bytes // nbytes(self.dtype))
        self.rows = _even(self.length, _ROWS * self.lanes, self.lanes)
        self.row_blocks = -(-self.length // self.rows)
        self.key_tile = self._key_tile()
        self.row_bytes = -(-self.rows // self.lanes) * self.lanes * nbytes(self.dtype)
        self.block = _even(self.keys, _SCORES_BYTES // self.row_bytes, self.key_tile)
        self.single = self.block >= self.keys  # one block holds all keys: no sum is scaled anew
        self.lower = Lower(buffer_readers(group))
        self.b, self.n, self.i0 = Var("b"), Var("n"), Var("i0")
        self.limit: int | PrimExpr = self.keys if attention.offset is None else Var("limit")
        self.p = self.of_keys("p", self.block)
        self.task: tuple[PrimExpr, ...] = ()  # the leading indices of p, where it is in the workspace
        self.queries = Buffer("queries", (self.size, self.rows), self.dtype, "local")
        is_read_often = self.length * self.sharing >= _READS
        self.wide = {
            t: Buffer("wide", t.shape, self.dtype, "workspace")
            for t in (attention.key, attention.value) if t.dtype != self.dtype and is_read_often
        }  # fmt: skip
        self.peak, self.total, self.factor = (self.row_values(n) for n in ("peak", "total", "factor"))

    def fits(self) -> bool:
        """Whether the local buffers are allowed."""
        return max(self.size, self.value_size) * self.row_bytes <= _LOCAL_BYTES

    def _key_tile(self) -> int:
        """Keys in a tile of scores: those that take the least time, where the last tile is a whole one too (znver3, 256
        keys: tiles of 6 take 0.95 of the time of 4)."""
        registers = self.group.machine.registers
        vectors = -(-self.rows // self.lanes)
        most = max(1, min(8, (registers - 1 - vectors) // vectors, self.keys))

        def time(keys: int) -> float:
            tile = Tile(keys, self.rows)
            return -(-self.keys // keys) * keys * slowness(tile, self.lanes, registers, Reads(again=True))

        return min(range(most, 0, -1), key=time)

    @property
    def threads(self) -> bool:
        sums = self.batch * self.heads * self.length * self.keys * (self.size + self.value_size)
        return worth_threads(sums * NANOSECONDS_PER_FMA)

    @property
    @abstractmethod
    def tasks(self) -> int:
        """Of the nest that takes the time."""

    @property
    @abstractmethod
    def products(self) -> tuple[tuple[int, Tile], ...]:
        """Multiply-adds for each pair of a row and a key that it sees, and the register tile in which they are done."""

    @property
    def scores_tile(self) -> Tile:
        return Tile(self.key_tile, self.rows)

    @property
    def pairs(self) -> int:
        """Pairs of a row and a key for which a score is computed: of a causal mask, those that some row of its block
        sees."""
        offset, total = self.attention.offset, 0
        for i0 in range(0, self.length, self.rows):
            seen = max(0, min(i0 + self.rows + offset, self.keys)) if isinstance(offset, int) else self.keys
            total += seen * min(self.rows, self.length - i0)
        return self.batch * self.heads * total

    def describe(self, schedule: str) -> Description:
        """In terms of the scores: rows of queries lie along the vectors, and the tile has keys below one another."""
        machine, registers = self.group.machine, self.group.machine.registers
        each = sum(
            count * slowness(tile, self.lanes, registers, Reads(again=True)) for count, tile in self.products
        ) * machine.multiply_add_ns(self.lanes)
        axes = (("batch", self.batch), ("head", self.heads), ("row", self.length))
        names = [self.group.buffers[t].name for t in self.group.inputs if t in self.wide]
        nest = Nest(
            axes,
            self.pairs * (each + TRANSCENDENTAL),
            (("key", self.keys),),
            loops=f"blocks of {self.rows} rows, {self.block} keys at a time",
            vector_axis="row",
            tile=(self.scores_tile.rows, self.scores_tile.columns),
            packing=tuple((name, "packed as floats") for name in names),
            tasks=self.tasks if self.threads else 1,
        )
        flops = 2 * self.pairs * sum(count for count, _ in self.products)
        return arithmetic(schedule, self.group, [nest], flops)

    # -- places and values

    def row_values(self, name: str) -> Buffer:
        return Buffer(name, (self.rows,), self.dtype, "local")

    def of_keys(self, name: str, keys: int, lead: tuple[int, ...] = ()) -> Buffer:
        """A value for each key and row of a block: local, or with ``lead`` sizes in the workspace."""
        shape = (*lead, keys + _HIGHEST_TILE - 1, self.rows)
        return Buffer(name, shape, self.dtype, "workspace" if lead else "local")

    def at(self, j: PrimExpr, i: PrimExpr) -> tuple[PrimExpr, ...]:
        """Where a value of key j and row i is, in p and what is like it."""
        return (*self.task, j, i)

    def read(self, tensor: Tensor, *indices: PrimExpr) -> PrimExpr:
        """An element of an operand, in the accumulator's type."""
        if tensor in self.wide:
            return self.wide[tensor][indices]
        return self.lower.expr(self.attention.read(tensor, *indices))

    def row(self, i: PrimExpr) -> PrimExpr:
        """The row at ``i`` of the block; the last block repeats the last row to be full."""
        row = self.i0 + i
        return row if self.length % self.rows == 0 else minimum(row, self.length - 1)

    def key(self, j: PrimExpr) -> PrimExpr:
        """The key at ``j``; the last tile repeats the last key to be full."""
        return j if self.keys % self.key_tile == 0 else minimum(j, self.keys - 1)

    def key_element(self, j: PrimExpr, h: PrimExpr) -> PrimExpr:
        return self.read(self.attention.key, self.b, j, self.n // self.sharing, h)

    def value_element(self, j: PrimExpr, h: PrimExpr) -> PrimExpr:
        return self.read(self.attention.value, self.b, j, self.n // self.sharing, h)

    def row_exists(self, i: PrimExpr, body: Stmt) -> Stmt:
        """``body`` if the block has that row."""
        return body if self.length % self.rows == 0 else If(self.i0 + i < self.length, body)

    def tile(self, rows: int, columns: int) -> Tile:
        return choose_tile(rows, columns, self.lanes, self.group.machine.registers)

    # -- statements

    def over_rows(self, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        """A loop over the rows of the block, which are lanes."""
        i = Var("i")
        return For(i, as_expr(self.rows), body(i), "vectorized")

    def fill(self, buffer: Buffer, value: float) -> Stmt:
        return self.over_rows(lambda i: store(buffer, i, const(value, self.dtype)))

    def over_keys(self, count: int | PrimExpr, body: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
        j = Var("j")
        return For(j, as_expr(count), self.over_rows(lambda i: body(j, i)))

    def with_copies(self, body: Stmt) -> Stmt:
        """The wide copies, then ``body``."""
        b, j, m, h = (Var(n) for n in "bjmh")
        copies = []
        for tensor, buffer in self.wide.items():
            value = self.lower.expr(self.attention.read(tensor, b, j, m, h))
            row = For(h, as_expr(buffer.shape[3]), store(buffer, (b, j, m, h), value), "vectorized")
            copies.append(tasks([b, j, m], [self.batch, self.keys, self.key_heads], row, self.threads))
        return allocate([*self.wide.values()], seq(*copies, body))

    def with_limit(self, body: Stmt) -> Stmt:
        """``limit`` is the number of keys that the block's rows see, up to the last row's."""
        if not isinstance(self.limit, Var):
            return body
        return Let(self.limit, minimum(self.i0 + self.rows + self.attention.offset, self.keys), body)

    def over_blocks(self, body: Callable[[PrimExpr, int | PrimExpr], Stmt]) -> Stmt:
        """``body(first, count)`` for the blocks of keys below the limit."""
        if self.single:
            return body(as_expr(0), self.limit)
        c, count = Var("c"), Var("count")
        blocks = (as_expr(self.limit) + (self.block - 1)) // self.block
        inner = Let(count, minimum(as_expr(self.limit) - c * self.block, self.block), body(c * self.block, count))
        return For(c, blocks, inner)

    def turned(self, target: Buffer, element: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> Stmt:
        """target[h, i] = element(i, h), so that rows lie along the lanes."""
        rows, columns = static(target.shape)
        return copied_across(
            rows, columns, self.group.machine,
            lambda h, i: element(i, h), lambda h, i, value: store(target, (h, i), value),
        )  # fmt: skip

    def query_element(self, i: PrimExpr, h: PrimExpr) -> PrimExpr:
        return self.read(self.attention.query, self.b, self.row(i), self.n, h) * self.attention.scale

    def scores(self, j0: PrimExpr, count: int | PrimExpr) -> Stmt:
        """p[j, i], the logits of ``count`` keys from ``j0`` on."""

        def finish(j: PrimExpr, i: PrimExpr, product: PrimExpr) -> Stmt:
            at = (self.b, self.n, self.row(i), self.key(j0 + j))
            return store(self.p, self.at(j, i), self.lower.expr(self.attention.finish(product, at)))

        product = Product(
            self.group.machine,
            self.dtype,
            self.size,
            lambda j, h: self.key_element(self.key(j0 + j), h),
            lambda h, i: self.queries[h, i],
            finish,
        )
        return product.tiles(count, self.rows, self.scores_tile)

    def softmax(self, count: int | PrimExpr) -> Stmt:
        """p = exp(p - peak), with peak and total brought up to date; ``factor`` is what earlier sums are scaled by."""
        top, exps = self.row_values("top"), self.row_values("exps")

        def raise_top(j: PrimExpr, i: PrimExpr) -> Stmt:
            return store(top, i, maximum(top[i], self.p[self.at(j, i)]))

        def exponential(j: PrimExpr, i: PrimExpr) -> Stmt:
            e = Var("e", self.dtype)
            body = seq(store(self.p, self.at(j, i), e), store(exps, i, exps[i] + e))
            return Let(e, call("exp", self.p[self.at(j, i)] - top[i]), body)

        steps = seq(
            self.over_rows(lambda i: store(top, i, self.peak[i])),
            self.over_keys(count, raise_top),
            self.over_rows(lambda i: store(self.factor, i, call("exp", self.peak[i] - top[i]))),
            self.over_rows(lambda i: store(exps, i, self.total[i] * self.factor[i])),
            self.over_keys(count, exponential),
            self.over_rows(lambda i: seq(store(self.total, i, exps[i]), store(self.peak, i, top[i]))),
        )
        return Allocate(top, Allocate(exps, steps))

    def begin(self) -> Stmt:
        """Before the first block of keys. The peak is taken as finite: rows of -inf give zeros."""
        return seq(
            self.turned(self.queries, self.query_element),
            self.fill(self.peak, LOWEST[self.dtype]),
            self.fill(self.total, 0.0),
        )

    def invert_total(self) -> Stmt:
        """``factor`` = 1 / total, or 1 where the total is 0."""
        one = const(1.0, self.dtype)
        return self.over_rows(lambda i: store(self.factor, i, one / nonzero(self.total[i])))


@dataclass(frozen=True)
class _Result:
    """Where an adjoint is written: from ``first`` on along an axis of an output, or all of it."""

    buffer: Buffer
    shape: tuple[int, ...]
    axis: int = 0
    first: int = 0

    def place(self, *indices: PrimExpr) -> tuple[PrimExpr, ...]:
        """Where the element with these indices is, in the buffer."""
        return tuple(i + self.first if k == self.axis and self.first else i for k, i in enumerate(indices))


def allocate(buffers: list[Buffer], body: Stmt) -> Stmt:
    for buffer in reversed(buffers):
        body = Allocate(buffer, body)
    return body


def _even(extent: int, most: int, multiple: int) -> int:
    """The size of blocks, at most about ``most``, that divide an extent evenly: a multiple, or the whole extent."""
    count = -(-extent // most)
    size = -(-extent // count)
    return extent if count == 1 else -(-size // multiple) * multiple


class ForwardLoops(_Loops):
    """The kernel of ``Attention.forward``."""

    @property
    def tasks(self) -> int:
        return self.batch * self.heads * self.row_blocks

    @property
    def products(self) -> tuple[tuple[int, Tile], ...]:
        return (self.size, self.scores_tile), (self.value_size, self.tile(self.rows, self.value_size))

    def body(self) -> Stmt:
        block = Var("block")
        context = Buffer("context", (self.rows, self.value_size), self.dtype, "local")
        work = self.whole_rows() if self.single else self.by_blocks(context)
        buffers = [self.p, self.queries, self.peak, self.total, self.factor, *([] if self.single else [context])]
        body = Let(self.i0, block * self.rows, self.with_limit(allocate(buffers, seq(self.begin(), work))))
        sizes = [self.batch, self.heads, self.row_blocks]
        return self.with_copies(tasks([self.b, self.n, block], sizes, body, self.threads))

    def whole_rows(self) -> Stmt:
        """All keys are one block: the context is stored from the registers."""
        context = self.context(as_expr(0), self.limit, lambda i, h, x: self.output(i, h, x * self.factor[i]))
        return seq(self.scores(as_expr(0), self.limit), self.softmax(self.limit), self.invert_total(), context)

    def by_blocks(self, context: Buffer) -> Stmt:
        def zero(i: PrimExpr, h: PrimExpr) -> Stmt:
            return store(context, (i, h), const(0, self.dtype))

        def one_block(j0: PrimExpr, count: int | PrimExpr) -> Stmt:
            added = self.context(
                j0,
                count,
                lambda i, h, x: store(context, (i, h), x),
                lambda i, h: context[i, h] * self.factor[i],
            )
            return seq(self.scores(j0, count), self.softmax(count), added)

        return seq(
            self.elements(zero),
            self.over_blocks(one_block),
            self.invert_total(),
            self.elements(lambda i, h: self.output(i, h, context[i, h] * self.factor[i])),
        )

    def elements(self, body: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
        """A loop over the block's part of the result."""
        h = Var("h")
        return loop("i", self.rows, lambda i: For(h, as_expr(self.value_size), body(i, h), "vectorized"))

    def context(self, j0: PrimExpr, count: int | PrimExpr, finish: Finish, start: Element | None = None) -> Stmt:
        """Σ_j p[j, i]·value[j, h] over a block of keys."""
        product = Product(
            self.group.machine,
            self.dtype,
            count,
            lambda i, j: self.p[self.at(j, i)],
            lambda j, h: self.value_element(j0 + j, h),
            finish,
            start,
        )
        return product.tiles(self.rows, self.value_size, self.tile(self.rows, self.value_size))

    def output(self, i: PrimExpr, h: PrimExpr, value: PrimExpr) -> Stmt:
        out = self.group.outputs[0]
        target = store(self.group.buffers[out], (self.b, self.i0 + i, self.n, h), cast(out.dtype, value))
        return self.row_exists(i, target)


class BackwardLoops(_Loops):
    """The kernel of ``Attention.backward``.

    A task has one head and a part of the rows. It keeps p and dx for one block of rows and all keys: in local memory,
    or in the workspace when they are too large. Where no other task adds to the same dkey and dvalue, it does so in the
    outputs; else in sums of its own, in the workspace.
    """

    def __init__(self, group: Group, attention: Attention, dy: Tensor, out: Tensor, axis: int | None) -> None:
        """``axis``: of the only output, along which the adjoints lie one after the other."""
        super().__init__(group, attention)
        self.dy, self.out = dy, out
        parts = min(-(-_LEAST_TASKS // (self.batch * self.heads)), -(-self.length // max(_LEAST_ROWS, self.rows)))
        self.blocks_of_part = -(-self.row_blocks // parts)
        self.parts = -(-self.row_blocks // self.blocks_of_part)
        self.part = Var("part")
        sizes, place = (self.batch, self.heads, self.parts), (self.b, self.n, self.part)
        is_local = (self.keys + _HIGHEST_TILE - 1) * self.row_bytes <= _LOCAL_BYTES
        self.task = () if is_local else place
        self.p, self.dx = (self.of_keys(v, self.keys, () if is_local else sizes) for v in ("p", "dx"))
        self.dys = Buffer("dys", (self.value_size, self.rows), self.dtype, "local")
        self.dot = self.row_values("dot")
        self.dq, self.dk, self.dv = self._results(axis)
        self.direct = self.parts == 1 and self.sharing == 1 and self.dk.buffer.dtype == self.dtype
        self.dk_parts = Buffer("dk_parts", (*sizes, self.keys, self.size), self.dtype, "workspace")
        self.dv_parts = Buffer("dv_parts", (*sizes, self.keys, self.value_size), self.dtype, "workspace")

    @property
    def tasks(self) -> int:
        return self.batch * self.heads * self.parts

    @property
    def products(self) -> tuple[tuple[int, Tile], ...]:
        scores = self.size + self.value_size, self.scores_tile
        sums = ((n, self.tile(self.keys, n)) for n in (self.value_size, self.size))
        return scores, *sums, (self.size, self.tile(self.rows, self.size))

    def _results(self, axis: int | None) -> list[_Result]:
        buffers = [self.group.buffers[t] for t in self.group.outputs]
        operands = (self.attention.query, self.attention.key, self.attention.value)
        shapes = [static(t.shape) for t in operands]
        if axis is None:
            return [_Result(buffer, shape) for buffer, shape in zip(buffers, shapes, strict=True)]
        firsts = itertools.accumulate((shape[axis] for shape in shapes), initial=0)
        return [_Result(buffers[0], shape, axis, first) for shape, first in zip(shapes, firsts, strict=False)]

    def body(self) -> Stmt:
        t = Var("block")
        block = self.part * self.blocks_of_part + t
        count = minimum(self.row_blocks - self.part * self.blocks_of_part, self.blocks_of_part)
        one = Let(self.i0, block * self.rows, self.with_limit(self.one_block_of_rows()))
        scores, rows = [self.p, self.dx], [self.queries, self.dys, self.peak, self.total, self.factor, self.dot]
        work = allocate([*([] if self.task else scores), *rows], seq(self.clear(), For(t, count, one)))
        nest = tasks([self.b, self.n, self.part], [self.batch, self.heads, self.parts], work, self.threads)
        whole = nest if self.direct else allocate([self.dk_parts, self.dv_parts], seq(nest, self.add_parts()))
        return self.with_copies(allocate(scores if self.task else [], whole))

    # -- the sums of a task

    def sums(self, out: _Result, parts: Buffer, j: PrimExpr, h: PrimExpr) -> tuple[Buffer, tuple[PrimExpr, ...]]:
        """Where a task adds to dkey or dvalue: buffer and indices."""
        if self.direct:
            return out.buffer, out.place(self.b, j, self.n, h)
        return parts, (self.b, self.n, self.part, j, h)

    def clear(self) -> Stmt:
        """All of a task's sums are 0, also those of keys that its rows do not see."""
        pairs = ((self.dk, self.dk_parts), (self.dv, self.dv_parts))
        return loop("j", self.keys, lambda j: seq(*(self._clear(out, parts, j) for out, parts in pairs)))

    def _clear(self, out: _Result, parts: Buffer, j: PrimExpr) -> Stmt:
        h = Var("h")
        target, indices = self.sums(out, parts, j, h)
        return For(h, as_expr(out.shape[3]), store(target, indices, const(0, self.dtype)), "vectorized")

    def add_parts(self) -> Stmt:
        """dkey and dvalue from the sums of the tasks: over the heads of a group, then the parts of their rows."""
        b, j, m = Var("b"), Var("j"), Var("m")

        def added(out: _Result, parts: Buffer) -> Stmt:
            h = Var("h")
            terms = [
                parts[b, m * self.sharing + g, part, j, h] for g in range(self.sharing) for part in range(self.parts)
            ]
            total = functools.reduce(operator.add, terms)
            body = store(out.buffer, out.place(b, j, m, h), cast(out.buffer.dtype, total))
            return For(h, as_expr(out.shape[3]), body, "vectorized")

        body = seq(added(self.dk, self.dk_parts), added(self.dv, self.dv_parts))
        return tasks([b, j, m], [self.batch, self.keys, self.key_heads], body, self.threads)

    def accumulate(self, out: _Result, parts: Buffer, weights: Buffer, rows: Tensor) -> Stmt:
        """Add Σ_i weights[j, i]·rows[i, h] to a task's sums, for the keys below the limit."""
        columns = out.shape[3]

        def finish(j: PrimExpr, h: PrimExpr, value: PrimExpr) -> Stmt:
            target, indices = self.sums(out, parts, j, h)
            body = store(target, indices, value)
            return body if isinstance(self.limit, int) else If(j < self.limit, body)

        def start(j: PrimExpr, h: PrimExpr) -> PrimExpr:
            target, indices = self.sums(out, parts, minimum(j, self.keys - 1), h)
            return target[indices]

        rest = self.length % self.rows
        depth = minimum(as_expr(self.length) - self.i0, self.rows) if rest else self.rows
        product = Product(
            self.group.machine,
            self.dtype,
            depth,
            lambda j, i: weights[self.at(j, i)],
            lambda i, h: self.read(rows, self.b, self.i0 + i, self.n, h),
            finish,
            start,
        )
        return product.tiles(self.limit, columns, self.tile(self.keys, columns))

    # -- one block of rows

    def one_block_of_rows(self) -> Stmt:
        return seq(
            self.begin(),
            self.turned(self.dys, self.dy_element),
            self.dots(),
            self.scores(as_expr(0), self.limit),
            self.softmax(self.limit),
            self.invert_total(),
            self.adjoint_of_logits(),
            self.accumulate(self.dv, self.dv_parts, self.p, self.dy),
            self.accumulate(self.dk, self.dk_parts, self.dx, self.attention.query),
            self.adjoint_of_queries(),
        )

    def dy_element(self, i: PrimExpr, h: PrimExpr) -> PrimExpr:
        return self.read(self.dy, self.b, self.row(i), self.n, h)

    def dots(self) -> Stmt:
        """dot[i] = Σ_h dy·out: a sum for each lane of h, then those in order."""
        width = min(self.lanes, self.value_size)
        partial, total = (Buffer(v, (s,), self.dtype, "local") for v, s in (("partial", width), ("sum", 1)))

        def row(i: PrimExpr) -> Stmt:
            def piece(h0: PrimExpr, count: int) -> Stmt:
                lane = Var("lane")
                out = self.read(self.out, self.b, self.row(i), self.n, h0 + lane)
                value = partial[lane] + self.dy_element(i, h0 + lane) * out
                return For(lane, as_expr(count), store(partial, lane, value), "vectorized")

            lane = Var("lane")
            return seq(
                For(lane, as_expr(width), store(partial, lane, const(0, self.dtype)), "vectorized"),
                cover(self.value_size, width, piece),
                store(total, 0, const(0, self.dtype)),
                loop("lane", width, lambda k: store(total, 0, total[0] + partial[k]), "unrolled"),
                store(self.dot, i, total[0]),
            )

        return allocate([partial, total], loop("i", self.rows, row))

    def adjoint_of_logits(self) -> Stmt:
        """p = e / total, and dx = scale·p·(Σ_v dy·value - dot)."""

        def finish(j: PrimExpr, i: PrimExpr, dp: PrimExpr) -> Stmt:
            at, p = self.at(j, i), Var("q", self.dtype)
            dx = p * (dp - self.dot[i]) * self.attention.scale
            return Let(p, self.p[at] * self.factor[i], seq(store(self.p, at, p), store(self.dx, at, dx)))

        product = Product(
            self.group.machine,
            self.dtype,
            self.value_size,
            lambda j, h: self.value_element(self.key(j), h),
            lambda h, i: self.dys[h, i],
            finish,
        )
        return product.tiles(self.limit, self.rows, self.scores_tile)

    def adjoint_of_queries(self) -> Stmt:
        """Σ_j dx[j, i]·key[j, h], to the output."""

        def finish(i: PrimExpr, h: PrimExpr, value: PrimExpr) -> Stmt:
            out = self.dq.buffer
            target = store(out, self.dq.place(self.b, self.i0 + i, self.n, h), cast(out.dtype, value))
            return self.row_exists(i, target)

        product = Product(
            self.group.machine,
            self.dtype,
            self.limit,
            lambda i, j: self.dx[self.at(j, i)],
            self.key_element,
            finish,
        )
        return product.tiles(self.rows, self.size, self.tile(self.rows, self.size))
