"""Walking and rewriting the loop IR: one generic traversal over the nodes' fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from operator import is_
from typing import Any, overload

from pullback.ir.depth import deep
from pullback.ir.node import Node
from pullback.ir.typed import cache
from pullback.tir.expr import (
    Binary,
    Buffer,
    BufferLoad,
    Call,
    Cast,
    FloatImm,
    IntImm,
    PrimExpr,
    Select,
    Var,
    binary,
    cast,
    select,
)
from pullback.tir.stmt import PrimFunc, Stmt

_LEAVES = ("span", "kind", "type", "name", "dtype", "code", "scope", "offset")  # fields that hold no nodes


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    """The fields of a node class that hold nodes."""
    return tuple(f.name for f in fields(kind) if f.name not in _LEAVES)


@cache
def _last_field_first(kind: type) -> tuple[str, ...]:
    return _field_names(kind)[::-1]


@cache
def _all_field_names(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


@overload
def children(node: PrimExpr) -> Iterator[PrimExpr]: ...
@overload
def children(node: Node) -> Iterator[PrimExpr | Stmt]: ...
def children(node: Node) -> Iterator[PrimExpr | Stmt]:
    """The direct sub-nodes (expressions and statements) of a node; buffers are not entered."""
    for name in _field_names(type(node)):
        value = getattr(node, name)
        if isinstance(value, (PrimExpr, Stmt)):
            yield value
        elif isinstance(value, tuple):
            yield from (v for v in value if isinstance(v, (PrimExpr, Stmt)))


@overload
def walk(node: PrimExpr) -> Iterator[PrimExpr]: ...
@overload
def walk(node: Node) -> Iterator[PrimExpr | Stmt]: ...
def walk(node: Node) -> Iterator[PrimExpr | Stmt]:
    """All sub-nodes in pre-order, the node itself first."""
    return _pre_order(node, (PrimExpr, Stmt))


def statements(node: Stmt) -> Iterator[Stmt]:
    """A statement and all that it is made of, in pre-order, without their expressions."""
    return _pre_order(node, Stmt)


def _pre_order(node: Any, kinds: type | tuple[type, ...]) -> Iterator[Any]:
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        for name in _last_field_first(type(current)):
            value = getattr(current, name)
            if isinstance(value, tuple):
                stack += [v for v in reversed(value) if isinstance(v, kinds)]
            elif isinstance(value, kinds):
                stack.append(value)


@overload
def distinct(*nodes: PrimExpr) -> Iterator[PrimExpr]: ...
@overload
def distinct(*nodes: Node) -> Iterator[PrimExpr | Stmt]: ...
def distinct(*nodes: Any) -> Iterator[Any]:
    """All sub-nodes, the nodes themselves first, those that are shared once: an expression of many shared parts, such
    as a derivative, is large as a tree."""
    stack = list({id(node): node for node in nodes}.values())
    seen = set(map(id, stack))
    while stack:
        current = stack.pop()
        yield current
        for child in children(current):
            if id(child) not in seen:
                seen.add(id(child))
                stack.append(child)


def loads(node: Node) -> list[BufferLoad]:
    return [n for n in walk(node) if isinstance(n, BufferLoad)]


class Mutator:
    """Rebuilds a tree bottom-up. Subclasses override ``expr``, ``stmt``, ``buffer`` and call super for the rest.

    Shared sub-expressions stay shared: the result of each expression object is remembered while the mutator lives.
    """

    def __init__(self) -> None:
        self._memo: dict[int, tuple[PrimExpr, PrimExpr]] = {}

    def buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def var(self, var: Var) -> PrimExpr:
        return var

    def expr(self, node: PrimExpr) -> PrimExpr:
        known = self._memo.get(id(node))
        if known is not None:
            return known[1]
        result = self._expr(node)
        self._memo[id(node)] = (node, result)  # keeps node alive, so that its id stays its own
        return result

    def _expr(self, node: PrimExpr) -> PrimExpr:
        if isinstance(node, Var):
            return self.var(node)
        if isinstance(node, (IntImm, FloatImm)):
            return node
        if isinstance(node, Binary):
            a, b = self.expr(node.a), self.expr(node.b)
            return node if a is node.a and b is node.b else binary(node.kind, a, b)
        if isinstance(node, Select):
            c, a, b = self.expr(node.condition), self.expr(node.a), self.expr(node.b)
            return node if c is node.condition and a is node.a and b is node.b else select(c, a, b)
        if isinstance(node, Cast):
            value = self.expr(node.value)
            return node if value is node.value else cast(node.type, value)
        if isinstance(node, Call):
            args = tuple(self.expr(a) for a in node.args)
            return node if all(map(is_, args, node.args)) else Call(node.name, args, node.type)
        if isinstance(node, BufferLoad):
            buffer, indices = self.buffer(node.buffer), tuple(self.expr(i) for i in node.indices)
            unchanged = buffer is node.buffer and all(map(is_, indices, node.indices))
            return node if unchanged else BufferLoad(buffer, indices)
        return self._rebuild(node)

    def stmt(self, node: Stmt) -> Stmt:
        return self._rebuild(node)

    def _rebuild(self, node: Any) -> Any:
        changes: dict[str, Any] = {}
        names = _field_names(type(node))
        for name in names:
            old = getattr(node, name)
            new = self._field(old)
            if new is not old:
                changes[name] = new
        if not changes:
            return node
        values = {name: getattr(node, name) for name in _all_field_names(type(node))} | changes
        return type(node)(**values)

    def _field(self, value: Any) -> Any:
        if isinstance(value, Stmt):
            return self.stmt(value)
        if isinstance(value, PrimExpr):
            return self.expr(value)
        if isinstance(value, Buffer):
            return self.buffer(value)
        if isinstance(value, tuple):
            new = tuple(self._field(v) for v in value)
            return value if all(map(is_, new, value)) else new
        return value

    def function(self, func: PrimFunc) -> PrimFunc:
        params = tuple(self._field(p) for p in func.params)
        return PrimFunc(func.name, params, self.stmt(func.body), func.attrs, span=func.span)


class Substitute(Mutator):
    """Replaces variables and buffers."""

    def __init__(self, variables: Mapping[Var, Any] | None = None, buffers: Mapping[Buffer, Buffer] | None = None):
        super().__init__()
        self.variables, self.buffers = variables or {}, buffers or {}

    def expr(self, node: PrimExpr) -> PrimExpr:
        if isinstance(node, Var):  # half of all nodes are leaves
            return self.var(node)
        return node if isinstance(node, (IntImm, FloatImm)) else super().expr(node)

    def var(self, var: Var) -> PrimExpr:
        return self.variables.get(var, var)

    def buffer(self, buffer: Buffer) -> Buffer:
        return self.buffers.get(buffer, buffer)


@deep
def substitute(node: Any, variables: Mapping[Var, Any]) -> Any:
    """``node`` (expression or statement) with the variables replaced by expressions."""
    mutator = Substitute(variables)
    return mutator.stmt(node) if isinstance(node, Stmt) else mutator.expr(node)


@deep
def rewrite(node: Any, rule: Callable[[PrimExpr], PrimExpr | None]) -> Any:
    """Bottom-up: every expression for which ``rule`` returns something is replaced by it."""

    class Rewriter(Mutator):
        def _expr(self, node: PrimExpr) -> PrimExpr:
            new = super()._expr(node)
            replaced = rule(new)
            return new if replaced is None else replaced

    return Rewriter().stmt(node) if isinstance(node, Stmt) else Rewriter().expr(node)
