"""Products in which an adjoint that is 0, because a value was not taken, stays 0: for gradients that users write.

    dx[i] = dy[i] / x[i]          →          dx[i] = xdivy(dy[i], x[i])
    dx[i] = dy[i] * w[i]          →          dx[i] = multiply_no_nan(w[i], dy[i])

What depends on the given adjoints is found by a walk over the stores and names. Products of it with what does not are
guarded. Where a store adds up several iterations, they are those of a contraction, and stay as they are; quotients are
guarded there too. ``derivative.py`` guards what it writes itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from pullback.tir.expr import Binary, Buffer, BufferLoad, FloatImm, PrimExpr, Var, call, is_float
from pullback.tir.stmt import BufferStore, For, Let, PrimFunc, Stmt
from pullback.tir.visitor import Mutator, distinct, loads


def guard_products(function: PrimFunc, adjoints: Iterable[Buffer]) -> PrimFunc:
    """The kernel, which is linear in the adjoints that it reads, with guarded products.

    Checks: the kernel is linear in the adjoints. Sums of several iterations are contractions: their products stay.
    """
    return _Statements(_linear(function.body, adjoints)).function(function)


def _linear(body: Stmt, adjoints: Iterable[Buffer]) -> set[Buffer | Var]:
    """The buffers and names that hold adjoints."""
    found: set[Buffer | Var] = set(adjoints)
    nodes = [n for n in distinct(body) if isinstance(n, (BufferStore, Let)) and is_float(n.value.dtype)]
    size = -1
    while len(found) != size:
        size = len(found)
        for node in nodes:
            if _holds(node.value, found):
                found.add(node.buffer if isinstance(node, BufferStore) else node.var)
    return found


def _holds(expr: PrimExpr, linear: set[Buffer | Var]) -> bool:
    return any((n.buffer if isinstance(n, BufferLoad) else n) in linear for n in distinct(expr) if _is_leaf(n))


def _is_leaf(node: object) -> bool:
    return isinstance(node, (BufferLoad, Var))


class _Statements(Mutator):
    def __init__(self, linear: set[Buffer | Var]) -> None:
        super().__init__()
        self.linear = linear
        self.loops: list[Var] = []

    def stmt(self, node: Stmt) -> Stmt:
        if isinstance(node, For):
            self.loops.append(node.var)
            body = self.stmt(node.body)
            self.loops.pop()
            return node if body is node.body else For(node.var, node.extent, body, node.kind, span=node.span)
        if isinstance(node, BufferStore):
            value = _Products(self.linear, self.adds_up(node)).expr(node.value)
            return node if value is node.value else BufferStore(node.buffer, value, node.indices, span=node.span)
        if isinstance(node, Let):
            value, body = _Products(self.linear, False).expr(node.value), self.stmt(node.body)
            same = value is node.value and body is node.body
            return node if same else Let(node.var, value, body, span=node.span)
        return super().stmt(node)

    def adds_up(self, node: BufferStore) -> bool:
        """Whether several iterations add to one element."""
        if all(load.buffer is not node.buffer for load in loads(node.value)):
            return False
        named = {n for index in node.indices for n in distinct(index) if isinstance(n, Var)}
        return any(var not in named for var in self.loops)


class _Products(Mutator):
    def __init__(self, linear: set[Buffer | Var], adds_up: bool) -> None:
        super().__init__()
        self.linear, self.adds_up = linear, adds_up

    def _expr(self, node: PrimExpr) -> PrimExpr:
        result = super()._expr(node)
        if not isinstance(node, Binary) or node.kind not in ("mul", "div") or not is_float(node.dtype):
            return result
        assert isinstance(result, Binary)
        first, second = _holds(node.a, self.linear), _holds(node.b, self.linear)
        if first == second or isinstance(node.a if second else node.b, FloatImm):
            return result
        if node.kind == "mul" and not self.adds_up:
            adjoint, factor = (result.a, result.b) if first else (result.b, result.a)
            return call("multiply_no_nan", factor, adjoint)
        return call("xdivy", result.a, result.b) if node.kind == "div" and first else result
