"""What a kernel does, counted from its loops: arithmetic, and the memory that it must read and write.

    for task in parallel(4):                        flops          4 · 256 · 32 · 2
        for k in range(256):                →       bytes_read     A and B, each once
            for j in vectorized(32):                bytes_written  C, once
                acc[j] = fma(A[task, k], B[k, j], acc[j])
        …

Conditions and extents may depend on loop variables: they are evaluated at all points at once, as arrays over the
points of those loops that matter. A multiplication, an addition, a division, ``min``, ``max`` or a call such as
``exp`` of floats is one FLOP, an ``fma`` two; comparisons, selections, conversions and index arithmetic are none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.depth import deep
from pullback.tir.expr import ARITHMETIC, Binary, Buffer, BufferLoad, Call, PrimExpr, Var, is_float, nbytes
from pullback.tir.interpreter import evaluate
from pullback.tir.static import static
from pullback.tir.stmt import BufferStore, For, If, Let, PrimFunc, Stmt
from pullback.tir.visitor import children, walk


@dataclass(frozen=True)
class Count:
    """One call of a kernel. Bytes are compulsory traffic: each parameter once, or what of it is touched if that is
    less; scratch memory and copies into it don't count."""

    flops: int
    bytes_read: int
    bytes_written: int


class DataDependent(Exception):
    """The number of iterations depends on the values in memory."""


@deep
def count(function: PrimFunc) -> Count | None:
    """The count of a kernel with constant shapes; None where it depends on values in memory or scalar arguments.

    Where a branch is taken or not by values in memory, the dearer one counts.
    """
    try:
        totals = _Counter().stmt(function.body, _Points({}, np.ones(1, np.int64)))
    except DataDependent:
        return None
    scratch = int(function.attrs.get("workspaces", 0))
    buffers = function.buffers[: len(function.buffers) - scratch]
    read, written = (sum(_touched(b, totals[kind, b]) for b in buffers) for kind in ("load", "store"))
    return Count(int(totals["flops"]), read, written)


def _touched(buffer: Buffer, accesses: int) -> int:
    """Bytes of a buffer that so many accesses reach at most."""
    size = math.prod(static(buffer.shape))
    return int(min(size, accesses)) * nbytes(buffer.dtype)


@dataclass(frozen=True)
class _Points:
    """Values of the variables that matter at each point, and how many times the statement runs there."""

    values: dict[Var, np.ndarray]
    times: np.ndarray

    def of(self, wanted: Iterable[Var]) -> _Points:
        """With these variables only; without any, all points are one."""
        values = {v: a for v, a in self.values.items() if v in wanted}
        return _Points(values, self.times if values else self.times.sum(keepdims=True))

    def at(self, chosen: Any) -> _Points:
        return _Points({v: a[chosen] for v, a in self.values.items()}, self.times[chosen])

    def evaluate(self, expr: PrimExpr) -> np.ndarray:
        needed = [n for n in walk(expr) if isinstance(n, Var)]
        if any(v not in self.values for v in needed) or any(isinstance(n, BufferLoad) for n in walk(expr)):
            raise DataDependent
        return np.broadcast_to(evaluate(expr, {v: self.values[v] for v in needed}), self.times.shape)


class _Counter:
    def __init__(self) -> None:
        self._control: dict[int, frozenset[Var]] = {}

    def stmt(self, node: Stmt, points: _Points) -> Counter[Any]:
        points = points.of(self.control(node))
        if not points.times.any():
            return Counter()
        if isinstance(node, For):
            return self.stmt(node.body, self.iterations(node, points))
        if isinstance(node, If):
            return self.branches(node, points)
        own = self.own(node, int(points.times.sum()))
        if isinstance(node, Let) and node.var in self.control(node.body):
            points = _Points(points.values | {node.var: points.evaluate(node.value)}, points.times)
        for child in children(node):
            if isinstance(child, Stmt):
                own += self.stmt(child, points)
        return own

    def iterations(self, node: For, points: _Points) -> _Points:
        """The points of a loop's body: a new axis when its variable matters, else more times at the same points."""
        extent = points.evaluate(node.extent).astype(np.int64)
        if node.var not in self.control(node.body):
            return _Points(points.values, points.times * extent)
        inner = points.at(np.repeat(np.arange(len(extent)), extent))
        first = np.repeat(np.cumsum(extent) - extent, extent)
        return _Points(inner.values | {node.var: np.arange(len(first)) - first}, inner.times)

    def branches(self, node: If, points: _Points) -> Counter[Any]:
        sides = [node.then, *([node.otherwise] if node.otherwise is not None else [])]
        try:
            holds = points.evaluate(node.condition).astype(bool)
        except DataDependent:
            return max((self.stmt(side, points) for side in sides), key=lambda c: c["flops"])
        totals: Counter[Any] = Counter()
        for side, chosen in zip(sides, (holds, ~holds), strict=False):
            totals += self.stmt(side, points.at(chosen))
        return totals

    def own(self, node: Stmt, times: int) -> Counter[Any]:
        """What the expressions of one statement cost; an expression that occurs twice is computed once."""
        totals: Counter[Any] = Counter()
        if isinstance(node, BufferStore):
            totals["store", node.buffer] += times
        seen: set[int] = set()
        stack = [child for child in children(node) if isinstance(child, PrimExpr)]
        while stack:
            expr = stack.pop()
            if id(expr) in seen:
                continue
            seen.add(id(expr))
            stack.extend(child for child in children(expr) if isinstance(child, PrimExpr))
            totals["flops"] += times * _flops(expr)
            if isinstance(expr, BufferLoad):
                totals["load", expr.buffer] += times
        return totals

    def control(self, node: Stmt) -> frozenset[Var]:
        """The variables on which it depends what is run inside a statement."""
        known = self._control.get(id(node))
        if known is not None:
            return known
        inner = [self.control(child) for child in children(node) if isinstance(child, Stmt)]
        result = frozenset[Var]().union(*inner)
        if isinstance(node, For):
            result = (result - {node.var}) | _variables(node.extent)
        elif isinstance(node, If):
            result |= _variables(node.condition)
        elif isinstance(node, Let) and node.var in result:
            result = (result - {node.var}) | _variables(node.value)
        self._control[id(node)] = result
        return result


def _variables(expr: PrimExpr) -> frozenset[Var]:
    return frozenset(n for n in walk(expr) if isinstance(n, Var))


def _flops(expr: PrimExpr) -> int:
    if not is_float(expr.dtype):
        return 0
    if isinstance(expr, Call):
        return 2 if expr.name == "fma" else 0 if expr.name == "reinterpret" else 1
    return int(isinstance(expr, Binary) and expr.kind in ARITHMETIC)
