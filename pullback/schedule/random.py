"""Random: elementwise work on random bits. A block of them is computed once for all the numbers that it holds.

    for g in parallel(groups):
        for l in vectorized(16):
            for w in unrolled(4):
                out[64 * g + 16 * w + l] = f(word w of block 16 * g + l, x[64 * g + 16 * w + l], …)

``te/random.py`` says which element takes which word. The words of a block are one expression but for w, so that
generated code computes what they share once. Other schedules take no random bits, and this one none along rows that are
no whole groups: such a kernel reads them, or a mask made of them, from memory. That takes less time than to draw again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pullback.schedule.affine import affine
from pullback.schedule.coalesce import coalesce
from pullback.schedule.cost import element_cost, is_costly, worth_threads
from pullback.schedule.group import Group, same_axes
from pullback.schedule.pointwise import buffer_readers, outer_loops, point
from pullback.te.graph import Lower
from pullback.te.random import LANES, draws, group_size, number
from pullback.te.tensor import Tensor
from pullback.tir import Buffer, BufferLoad, Call, For, Let, PrimExpr, PrimFunc, Stmt, Var, as_expr, cast, minimum, seq
from pullback.tir.philox import INTRINSIC
from pullback.tir.visitor import Mutator, loads, substitute

_CHUNK = 64  # groups that one task takes, where there is one axis
_MOST = 2**32  # elements whose blocks are counted in 32 bits


@dataclass(frozen=True, eq=False)
class Random:
    """Stages of one shape, some of which draw. ``body`` computes the outputs at the point ``axes``, and reads the bits
    of the stages in ``drawn`` from buffers that do not exist. The last axis has whole groups, if there are others."""

    group: Group
    axes: list[Var]
    extents: list[int]
    body: Stmt
    drawn: Mapping[Buffer, Tensor]
    renamed: Mapping[Buffer, Buffer]

    @staticmethod
    def recognize(group: Group) -> Random | None:
        shape, stages = group.outputs[0].shape, [s for s in group.stages if draws(s)]
        if not stages or group.reductions or any(o.shape != shape for o in group.outputs):
            return None
        if not all(isinstance(s, int) for s in shape) or math.prod(shape) > _MOST:  # type: ignore[arg-type]
            return None
        if len({s.dtype for s in stages}) > 1 or not all(s.shape == shape and _in_order(s) for s in stages):
            return None
        if any(is_costly(s) and s.shape != shape for s in group.stages):
            return None
        places = {s: Buffer(s.name, s.shape, s.dtype) for s in stages}
        readers = buffer_readers(group) | {s: (lambda i, b=b: b[i]) for s, b in places.items()}  # type: ignore[misc]
        axes = [Var(f"i{k}") for k in range(len(shape))]
        body = point(group, [s for s in group.stages if s.shape == shape], axes, readers)
        axes, extents, body, renamed = coalesce(axes, list(shape), body)
        drawn = {renamed.get(b, b): s for s, b in places.items()}
        aligned = len(axes) < 2 or extents[-1] % group_size(stages[0].dtype) == 0  # type: ignore[operator]
        if not aligned or not all(same_axes(n.indices, axes) for n in loads(body) if n.buffer in drawn):
            return None
        return Random(group, axes, extents, body, drawn, renamed)  # type: ignore[arg-type]

    def lower(self, name: str) -> PrimFunc:
        lower, keys, lets = Lower(buffer_readers(self.group)), {}, []
        for buffer, stage in self.drawn.items():  # what is the same for all elements stands outside of the loops
            values = [lower.expr(a) for a in stage.body.args[2:]]  # type: ignore[union-attr]
            keys[buffer] = tuple(Var(f"key{k}", "uint32") for k in range(len(values)))
            lets.extend(zip(keys[buffer], values, strict=True))
        body = seq(*self.nests(keys))
        for var, value in reversed(lets):
            body = Let(var, value, body)
        return self.group.function(name, body, self.renamed)

    def nests(self, keys: Mapping[Buffer, tuple[PrimExpr, ...]]) -> Iterator[Stmt]:
        """The loops over whole groups, then over the rest."""
        if not self.axes:
            yield _Draw(keys, as_expr(0), as_expr(0)).stmt(self.body)
            return
        *outer, axis = self.axes
        *sizes, extent = self.extents
        size = group_size(next(iter(self.drawn)).dtype)
        whole, rest = divmod(extent, size)
        row = as_expr(0)
        for var, n in zip(outer, sizes, strict=True):
            row = row * n + var

        def at(group: PrimExpr, word: PrimExpr, lane: PrimExpr) -> Stmt:
            drawn = _Draw(keys, (row * whole + group) * LANES + lane, word).stmt(self.body)
            return substitute(drawn, {axis: group * size + word * LANES + lane})  # type: ignore[no-any-return]

        if whole:
            group, word, lane = Var("group"), Var("word"), Var("lane")
            words = For(word, as_expr(size // LANES), at(group, word, lane), "unrolled")
            inner = For(lane, as_expr(LANES), words, "vectorized")
            threads = worth_threads(element_cost(self.group.stages) * math.prod(self.extents))
            if outer or not threads:
                yield outer_loops([*outer, group], [*sizes, whole], inner, threads)
            else:
                yield _chunks(group, whole, inner)
        for word in range(-(-rest // LANES)):  # of one axis
            lane = Var("lane")
            yield For(lane, as_expr(min(LANES, rest - word * LANES)), at(as_expr(whole), as_expr(word), lane), "vectorized")


class _Draw(Mutator):
    """Replaces reads of the bits by a word of a block."""

    def __init__(self, keys: Mapping[Buffer, tuple[PrimExpr, ...]], block: PrimExpr, word: PrimExpr) -> None:
        super().__init__()
        self.keys, self.place = keys, (cast("uint32", word), cast("uint32", block))

    def _expr(self, node: PrimExpr) -> PrimExpr:
        if isinstance(node, BufferLoad) and node.buffer in self.keys:
            return Call(INTRINSIC, (*self.place, *self.keys[node.buffer]), node.dtype)
        return super()._expr(node)


def _in_order(stage: Tensor) -> bool:
    """Whether the numbers of the elements are those of the stage's own axes, and not of others that were permuted."""
    extents = {axis: size for axis, size in zip(stage.axes, stage.shape, strict=True)}
    found = affine(number(stage), extents)  # type: ignore[arg-type]
    step = 1
    for axis, size in reversed(extents.items()):
        if found is None or (size > 1 and found.terms.get(axis) != step):  # type: ignore[operator]
            return False
        step *= size  # type: ignore[assignment]
    return True


def _chunks(group: Var, count: int, body: Stmt) -> Stmt:
    """The groups of one axis, divided into tasks."""
    chunk, own = Var("chunk"), Var("own")
    size = minimum(count - chunk * _CHUNK, _CHUNK) if count % _CHUNK else as_expr(_CHUNK)
    inner = For(own, size, substitute(body, {group: chunk * _CHUNK + own}), "serial")
    return For(chunk, as_expr(-(-count // _CHUNK)), inner, "parallel")
