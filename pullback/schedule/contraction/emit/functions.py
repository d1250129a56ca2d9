"""Elementary functions of a register tile's results, in loops of their own.

    for j in vectorized(columns): for r in unrolled(rows): argument[r, j] = acc[r, j] + bias[j];  sums[r, j] = acc[r, j]
    for i in vectorized(rows · columns): value[i] = erf(argument[i])
    for j in vectorized(columns): for r in unrolled(rows): out[r, j] = … sums[r, j] … value[r, j] …

Beside the accumulators, which take all registers, a function has none for its values, and is one dependent chain after
the other. Its own loop has all registers, interleaves vectors, and is a dozenth of the code. Sums that are needed after
it are spilled here: LLVM might choose to spill at every term.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pullback.tir import (
    Allocate,
    Buffer,
    BufferLoad,
    BufferStore,
    Call,
    For,
    Let,
    PrimExpr,
    Seq,
    Stmt,
    Var,
    as_expr,
    seq,
    store,
)
from pullback.tir.equality import Equality
from pullback.tir.expr import FloatImm
from pullback.tir.math import is_chain
from pullback.tir.visitor import rewrite, substitute, walk


def functions_in_own_loops(nest: For, number: PrimExpr, size: int, acc: BufferLoad) -> Stmt:
    """The loops over the elements of a tile, whose innermost statement writes the results, in that order; ``number`` is
    that of the element there, of ``size``, and ``acc`` its sum. As it was where it computes no functions."""
    loops, finish = _unnested(nest)
    results = _inlined(finish)
    found = _Functions(number, size, acc)
    rest = [rewrite(result, found) for result in results]
    if not found.functions:
        return nest
    later = [*rest, *(a for f in found.functions if f.level for _, a in f.arguments)]
    is_needed = any(found.is_sum(n) for node in later for n in walk(node))
    parts: list[Stmt] = []
    for level in range(1 + max(f.level for f in found.functions)):
        own = [f for f in found.functions if f.level == level]
        arguments = [(b, a if level == 0 else found.with_kept_sum(a)) for f in own for b, a in f.arguments]
        stores = [store(b, (number,), a) for b, a in arguments]
        if level == 0 and found.kept is not None and is_needed:
            stores.append(store(found.kept.buffer, found.kept.indices, acc))
        parts.append(_nested(loops, stores))
        parts.extend(f.everywhere(size) for f in own)
    body: Stmt = seq(*parts, _nested(loops, [_read_first([found.with_kept_sum(r) for r in rest])]))
    for function in found.functions:
        for buffer in (function.value, *(b for b, _ in function.arguments)):
            body = Allocate(buffer, body)
    return body


@dataclass(frozen=True, eq=False)
class _Function:
    """A call on arguments that are not constant, each with the buffer that holds it, of ``level`` other calls."""

    call: Call
    arguments: tuple[tuple[Buffer, PrimExpr], ...]
    value: Buffer
    level: int

    def everywhere(self, size: int) -> Stmt:
        """The call for all elements of the tile."""
        i, buffers = Var("i"), iter(self.arguments)
        arguments = tuple(a if isinstance(a, FloatImm) else next(buffers)[0][i] for a in self.call.args)
        body = store(self.value, (0, i), Call(self.call.name, arguments, self.call.type))
        return For(i, as_expr(size), body, "vectorized")


class _Functions:
    """A rule that replaces calls by what they are at an element, innermost first, equal ones by the same.

    ``kept``: where the element's sum is kept, in the second row of a function's values of its type. What a loop over
    all elements writes stays in memory; a buffer of its own would be made registers."""

    def __init__(self, number: PrimExpr, size: int, acc: BufferLoad) -> None:
        self.number, self.size, self.acc = number, size, acc
        self.equal, self.known = Equality(), dict[int, _Function]()
        self.kept: BufferLoad | None = None

    @property
    def functions(self) -> list[_Function]:
        return list(self.known.values())

    def __call__(self, node: PrimExpr) -> PrimExpr | None:
        if not isinstance(node, Call) or not is_chain(node.name, node.dtype):
            return None
        key = self.equal(node)
        if key not in self.known:
            self.known[key] = self._function(node)
        return self.known[key].value[0, self.number]

    def _function(self, call: Call) -> _Function:
        given = [a for a in call.args if not isinstance(a, FloatImm)]
        arguments = tuple((Buffer("argument", (self.size,), a.dtype, "local"), a) for a in given)
        inside = {n.buffer for a in given for n in walk(a) if isinstance(n, BufferLoad)}
        level = max((f.level + 1 for f in self.known.values() if f.value in inside), default=0)
        return _Function(call, arguments, self._value(call.dtype), level)

    def _value(self, dtype: str) -> Buffer:
        """A buffer for what a function is at all elements, in its first row."""
        keeps = self.kept is None and dtype == self.acc.dtype
        buffer = Buffer("value", (1 + keeps, self.size), dtype, "local")
        if keeps:
            self.kept = buffer[1, self.number]
        return buffer

    def is_sum(self, node: Any) -> bool:
        """Whether this is the element's sum, where the register tile has it."""
        return isinstance(node, BufferLoad) and node.buffer is self.acc.buffer

    def with_kept_sum(self, node: Any) -> Any:
        """An expression or a statement as it is after the functions."""

        def kept(n: PrimExpr) -> PrimExpr | None:
            return self.kept if self.is_sum(n) else None

        return rewrite(node, kept)


def _unnested(nest: Stmt) -> tuple[list[For], Stmt]:
    loops: list[For] = []
    while isinstance(nest, For):
        loops.append(nest)
        nest = nest.body
    return loops, nest


def _nested(loops: Sequence[For], body: Sequence[Stmt]) -> Stmt:
    """The same loops around other statements, with variables of their own."""
    fresh = {n.var: Var(n.var.name) for n in loops}
    nest = substitute(seq(*body), fresh)
    for n in reversed(loops):
        nest = For(fresh[n.var], n.extent, nest, n.kind)
    return nest


def _read_first(stores: Sequence[BufferStore]) -> Stmt:
    """The stores after all loads, so that one may be to the memory that another one's value comes from."""
    values = [(Var(f"v_{s.buffer.name}", s.value.dtype), s.value) for s in stores]
    body = seq(*(replace(s, value=var) for s, (var, _) in zip(stores, values, strict=True)))
    for var, value in reversed(values):
        body = Let(var, value, body)
    return body


def _inlined(stmt: Stmt) -> list[BufferStore]:
    """The stores of a statement, with what it binds in its places; none where there is more than that."""
    values: dict[Var, PrimExpr] = {}
    while isinstance(stmt, Let):
        values[stmt.var] = substitute(stmt.value, values)
        stmt = stmt.body
    parts = stmt.stmts if isinstance(stmt, Seq) else (stmt,)
    return [substitute(p, values) for p in parts] if all(isinstance(p, BufferStore) for p in parts) else []
