"""In-place variants of kernels: one parameter for an input and an output that share their memory."""

from __future__ import annotations

from pullback.tir.expr import Buffer, BufferLoad
from pullback.tir.polynomial import key
from pullback.tir.stmt import BufferStore, PrimFunc, Seq
from pullback.tir.visitor import Substitute, walk


def may_share(function: PrimFunc, source: Buffer, target: Buffer) -> bool:
    """Whether ``target`` may be written over ``source``: each element is read only where, and before, it is written."""
    if source.shape != target.shape or source.dtype != target.dtype:
        return False
    stores = {_place(n.indices) for n in walk(function.body) if isinstance(n, BufferStore) and n.buffer is target}
    reads = [n for n in walk(function.body) if isinstance(n, BufferLoad)]
    if any(n.buffer is target for n in reads):
        return False
    if not all(_place(n.indices) in stores for n in reads if n.buffer is source):
        return False
    return not any(isinstance(n, Seq) and _reads_late(n, source, target) for n in walk(function.body))


def _reads_late(block: Seq, source: Buffer, target: Buffer) -> bool:
    """Whether a statement of the block loads ``source`` after one that stores ``target``."""
    stored = False
    for statement in block.stmts:
        nodes = list(walk(statement))
        if stored and any(isinstance(n, BufferLoad) and n.buffer is source for n in nodes):
            return True
        stored = stored or any(isinstance(n, BufferStore) and n.buffer is target for n in nodes)
    return False


def _place(indices: tuple) -> tuple[str, ...]:
    return tuple(key(i) for i in indices)


def share(function: PrimFunc, name: str, pairs: dict[Buffer, Buffer]) -> PrimFunc:
    """The kernel with each target of ``pairs`` (target → source) replaced by its source and dropped as parameter."""
    body = Substitute(buffers=pairs).stmt(function.body)
    return PrimFunc(name, tuple(p for p in function.params if p not in pairs), body, function.attrs)
