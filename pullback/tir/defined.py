"""What a user's kernel reads or gives before it wrote it is 0: outputs and local buffers are filled where that counts.

    for i in range(4): y[i] = x[i]        y has 8 elements    →    for i in range(8): y[i] = 0; for i in range(4): …

Nothing is added where the first statement that touches a buffer writes all of it, and is read back only where it
wrote: ``for i: for j: y[i, j] = …`` with loops as long as the axes. What these loops then do to the element is free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from pullback.ir.depth import deep
from pullback.ir.node import Node
from pullback.tir.expr import Buffer, BufferLoad, IntImm, PrimExpr, Var, const
from pullback.tir.stmt import Allocate, BufferStore, For, Let, PrimFunc, Seq, Stmt, loop, seq, store
from pullback.tir.visitor import Mutator, distinct, statements


@deep
def defined(kernel: PrimFunc, outputs: Collection[Buffer]) -> PrimFunc:
    """The kernel, of known sizes, such that its results do not depend on what memory held before."""
    body = _Locals().stmt(kernel.body)
    filled = [_zeros(b, "serial") for b in outputs if not _is_written_first(b, body)]
    return kernel if body is kernel.body and not filled else replace(kernel, body=seq(*filled, body))


class _Locals(Mutator):
    """Fills the local buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.loops = "serial"  # a vectorized loop holds unrolled ones only

    def stmt(self, node: Stmt) -> Stmt:
        before = self.loops
        if isinstance(node, For) and node.kind == "vectorized":
            self.loops = "unrolled"
        result = super().stmt(node)
        self.loops = before
        if isinstance(result, Allocate) and not _is_written_first(result.buffer, result.body):
            return replace(result, body=seq(_zeros(result.buffer, self.loops), result.body))
        return result


def _zeros(buffer: Buffer, kind: str) -> Stmt:
    def nest(indices: tuple[PrimExpr, ...]) -> Stmt:
        if len(indices) == len(buffer.shape):
            return store(buffer, indices, const(0, buffer.dtype))
        return loop("i", buffer.shape[len(indices)], lambda i: nest((*indices, i)), kind)

    return nest(())


def _is_written_first(buffer: Buffer, body: Stmt) -> bool:
    """Whether all of a buffer is written before any of it is read, as far as loops show it; or whether
    nothing touches a buffer that nobody else reads."""
    first = next(_touching(buffer, body, {}), None)
    if first is None:
        return buffer.scope != "global"
    write, loops = first
    if write is None or not all(_count(f.extent) for f in loops.values()):
        return False
    covering: list[For] = []
    for index, size in zip(write.indices, buffer.shape, strict=True):
        over = loops.get(index) if isinstance(index, Var) else None
        if over is not None and over not in covering and _count(over.extent) == _count(size):
            covering.append(over)
        elif _count(index) != 0 or _count(size) != 1:
            return False
    outermost = next((f for f in loops.values() if f in covering), None)
    return outermost is None or all(_same(load.indices, write.indices) for load in _reads(buffer, outermost))


def _touching(
    buffer: Buffer, node: Stmt, loops: Mapping[Var, For]
) -> Iterator[tuple[BufferStore | None, Mapping[Var, For]]]:
    """In order: the stores to a buffer that run for sure, each with the loops around it, outermost first; None for what
    reads it or may not run."""
    if isinstance(node, Seq):
        for part in node.stmts:
            yield from _touching(buffer, part, loops)
    elif isinstance(node, For):
        yield from _read_by(buffer, node.extent)
        yield from _touching(buffer, node.body, {**loops, node.var: node})
    elif isinstance(node, Let):
        yield from _read_by(buffer, node.value)
        yield from _touching(buffer, node.body, loops)
    elif isinstance(node, Allocate):
        yield from _touching(buffer, node.body, loops)
    elif isinstance(node, BufferStore):
        yield from _read_by(buffer, node.value, *node.indices)
        if node.buffer is buffer:
            yield node, loops
    elif any(isinstance(s, BufferStore) and s.buffer is buffer for s in statements(node)) or _reads(buffer, node):
        yield None, {}


def _read_by(buffer: Buffer, *values: PrimExpr) -> Iterator[tuple[None, Mapping[Var, For]]]:
    if _reads(buffer, *values):
        yield None, {}


def _count(size: int | PrimExpr) -> int | None:
    return size if isinstance(size, int) else size.value if isinstance(size, IntImm) else None


def _reads(buffer: Buffer, *nodes: Node) -> list[BufferLoad]:
    return [n for n in distinct(*nodes) if isinstance(n, BufferLoad) and n.buffer is buffer]


def _same(indices: tuple[PrimExpr, ...], others: tuple[PrimExpr, ...]) -> bool:
    return all(a is b or _count(a) == _count(b) is not None for a, b in zip(indices, others, strict=True))
