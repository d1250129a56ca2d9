"""Whether the iterations of a loop are independent, so that they may run in any order, at once or as lanes.

They are when each touches elements of its own of every buffer that the loop writes: along some axis all accesses have
one index, ``k · i + (what is the same in all iterations)`` with k ≠ 0. Buffers that live inside the loop are each
iteration's own. It does not matter who of several writes a constant, if nobody reads it.

    for i: for j: y[i, j] = y[i, j - 1] + x[j, i]        i is independent, j is not
"""

from __future__ import annotations

from typing import Any

from pullback.tir.expr import Buffer, BufferLoad, FloatImm, IntImm, PrimExpr, Var
from pullback.tir.polynomial import Polynomial, key
from pullback.tir.stmt import Allocate, BufferStore, For, Let, Stmt
from pullback.tir.visitor import distinct, substitute


def independent(var: Var, body: Stmt) -> bool:
    """Whether the iterations of a loop over ``var`` with this body are independent, as far as indices show it."""
    nodes = list(distinct(body))
    own = {n.buffer for n in nodes if isinstance(n, Allocate)}
    named = {n.var: n.value for n in nodes if isinstance(n, Let)}
    bound = {n.var for n in nodes if isinstance(n, For)}
    written = {n.buffer for n in nodes if isinstance(n, BufferStore)} - own
    touched: dict[Buffer, list[tuple[PrimExpr, ...]]] = {b: [] for b in written}
    for node in nodes:
        if isinstance(node, (BufferLoad, BufferStore)) and node.buffer in touched:
            touched[node.buffer].append(node.indices)
    return all(_is_divided(places, var, named, bound) or _is_set(b, nodes) for b, places in touched.items())


def _is_set(buffer: Buffer, nodes: list[Any]) -> bool:
    """Whether a buffer is only written, and all stores have one constant."""
    if any(isinstance(n, BufferLoad) and n.buffer is buffer for n in nodes):
        return False
    values = [n.value for n in nodes if isinstance(n, BufferStore) and n.buffer is buffer]
    numbers = {repr(v.value) for v in values if isinstance(v, (IntImm, FloatImm))}
    return len(numbers) == 1 and all(isinstance(v, (IntImm, FloatImm)) for v in values)


def _is_divided(places: list[tuple[PrimExpr, ...]], var: Var, named: dict[Var, PrimExpr], bound: set[Var]) -> bool:
    """Whether along some axis all accesses have the same index, another one in each iteration."""
    for indices in zip(*places, strict=True):
        found = {_own_index(index, var, named, bound) for index in indices}
        if len(found) == 1 and None not in found:
            return True
    return False


def _own_index(index: PrimExpr, var: Var, named: dict[Var, PrimExpr], bound: set[Var]) -> str | None:
    """The canonical form of an index that is another one in each iteration, and for sure; else None."""
    while any(n in named for n in distinct(index)):
        index = substitute(index, {v: named[v] for v in distinct(index) if v in named})
    form = Polynomial.of(index)
    mine = [m for m in form.terms if any(_mentions(form.atoms[a], var) for a in m)]
    if len(mine) != 1 or len(mine[0]) != 1 or form.atoms[mine[0][0]] is not var:
        return None
    others = [form.atoms[a] for m in form.terms for a in m if m != mine[0]]
    varying = any(isinstance(n, BufferLoad) or n in bound for other in others for n in distinct(other))
    return None if varying else key(index)


def _mentions(expr: PrimExpr, var: Var) -> bool:
    return any(n is var for n in distinct(expr))
