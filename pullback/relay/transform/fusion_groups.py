"""Which nodes of a function fusion puts together: a graph of uses, its post-dominators, and groups.

A node's *post-dominator* is the first node that all ways from it to the result go through. A node is fused with it if
what lies on these ways may be computed with the two: elementwise work behind a contraction, what only moves elements
into what reads it, elementwise work before a reduction. There are three rounds: contractions and elementwise work, then
what moves elements, then what feeds tuples inside groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pullback.relay.adt import Match
from pullback.relay.expr import (
    Call,
    Constant,
    Expr,
    Function,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
)
from pullback.relay.op.registry import Op, OpPattern
from pullback.relay.ty import TensorType, TupleType
from pullback.relay.visitor import children

_SIMPLE_CONSTANTS = ("int32", "int64", "float32", "float64", "bool")

Condition = Callable[[int, bool], bool]  # of a group's pattern, and whether it is the sink


@dataclass(eq=False)
class Node:
    """A node of the graph: ``outputs`` are the nodes that use it, with the pattern of each use."""

    ref: Any
    index: int = -1
    pattern: int = OpPattern.OPAQUE
    outside: bool = False  # used by what is never fused
    outputs: list[tuple[Node, int]] = field(default_factory=list)


@dataclass(eq=False)
class Group:
    """Nodes that are computed together; the root is that of ``parent`` if there is one."""

    pattern: int
    root_ref: Any
    anchor_ref: Any = None
    parent: Group | None = None
    count: int = 1

    def root(self) -> Group:
        group = self
        while group.parent is not None:
            group = group.parent
        return group


def graph_of(body: Expr) -> list[Node]:
    """The nodes of an expression with inferred types, in post-order."""
    return _Graph(body).order


class _Graph:
    def __init__(self, body: Expr) -> None:
        self.nodes: dict[Any, Node] = {}
        self.order: list[Node] = []
        self._use(body, None, OpPattern.OPAQUE)
        pending: list[tuple[Any, bool]] = [(body, False)]
        seen: set[Any] = set()
        while pending:
            expr, done = pending.pop()
            if done:
                node = self._node(expr)
                node.index = len(self.order)
                self.order.append(node)
            elif expr not in seen:
                seen.add(expr)
                if isinstance(expr, Function) and (expr.attrs.get("Compiler") or expr.attrs.get("Primitive")):
                    pending.append((expr, True))
                    continue
                self._enter(expr)
                pending.append((expr, True))
                pending.extend((child, False) for child in reversed(children(expr)))

    def _node(self, expr: Any) -> Node:
        return self.nodes.setdefault(expr, Node(expr))

    def _use(self, expr: Any, by: Node | None, pattern: int) -> None:
        node = self._node(expr)
        if by is None:
            node.outside = True
        else:
            node.outputs.append((by, pattern))

    def _enter(self, expr: Any) -> None:
        """Note a node's pattern and what it uses."""
        node = self._node(expr)
        if isinstance(expr, Constant):
            simple = expr.data.ndim == 0 and expr.data.dtype in _SIMPLE_CONSTANTS
            node.pattern = OpPattern.ELEMWISE if simple else OpPattern.OPAQUE
        elif isinstance(expr, Call):
            self._call(expr, node)
        elif isinstance(expr, Tuple):
            node.pattern = OpPattern.TUPLE
            for item in expr.fields:
                fusible = isinstance(item.checked_type, TensorType)
                self._use(item, node if fusible else None, OpPattern.INJECTIVE if fusible else OpPattern.OPAQUE)
        elif isinstance(expr, TupleGetItem):
            of = expr.tuple_value.checked_type
            if isinstance(of, TupleType) and all(isinstance(f, TensorType) for f in of.fields):
                node.pattern = OpPattern.INJECTIVE
                self._use(expr.tuple_value, node, OpPattern.INJECTIVE)
            else:
                self._use(expr.tuple_value, None, OpPattern.OPAQUE)
        elif isinstance(expr, (Function, Let, If, RefCreate, RefRead, RefWrite, Match)):
            for child in children(expr):
                self._use(child, None, OpPattern.OPAQUE)

    def _call(self, call: Call, node: Node) -> None:
        lowered = isinstance(call.op, Op) and call.op.lower is not None  # operators of values depend on all elements
        node.pattern = call.op.pattern if lowered else OpPattern.OPAQUE
        self._use(call.op, None, OpPattern.OPAQUE)
        result = call.checked_type
        for arg in call.args:
            pattern, given = node.pattern, arg.checked_type
            if pattern == OpPattern.BROADCAST and isinstance(result, TensorType) and isinstance(given, TensorType):
                pattern = OpPattern.ELEMWISE if given.shape == result.shape else pattern
            self._use(arg, node, pattern)


@dataclass(eq=False)
class _Dominated:
    """A node of the tree of post-dominators; ``pattern`` is that of all ways to its parent together."""

    node: Node
    parent: _Dominated | None
    depth: int
    pattern: int


def _tree(order: list[Node]) -> list[_Dominated]:
    tree: list[Any] = [None] * len(order)
    for node in reversed(order):
        parent, pattern = (None, OpPattern.OPAQUE) if node.outside else _common(node, tree)
        tree[node.index] = _Dominated(node, parent, 1 if parent is None else parent.depth + 1, pattern)
    return tree


def _common(node: Node, tree: list[_Dominated]) -> tuple[_Dominated | None, int]:
    """Where all ways from the node meet first, and the largest of their patterns."""
    pattern = OpPattern.ELEMWISE
    meeting: _Dominated | None = None
    for place, (user, used_as) in enumerate(node.outputs):
        other: _Dominated | None = tree[user.index]
        if place == 0:
            meeting = other
        while meeting is not other:
            if meeting is None or other is None:
                meeting = None
                break
            first, second = meeting.depth, other.depth
            if second >= first:
                pattern, other = max(pattern, other.pattern), other.parent
            if first >= second:
                pattern, meeting = max(pattern, meeting.pattern), meeting.parent
        pattern = max(pattern, used_as)
    return meeting, pattern


class _Partition:
    def __init__(self, order: list[Node], most: int) -> None:
        self.order, self.most = order, most
        self.groups = [self._alone(node) for node in order]

    def _alone(self, node: Node) -> Group:
        anchor = node.ref if node.pattern == OpPattern.OUT_ELEMWISE_FUSABLE else None
        return Group(node.pattern, node.ref, anchor)

    def run(self) -> None:
        tree = _tree(self.order)
        for round_ in range(3):
            for node in self.order:
                self._try(node, tree[node.index], round_)

    def _try(self, node: Node, place: _Dominated, round_: int) -> None:
        group = self.groups[node.index]
        if group.pattern == OpPattern.OPAQUE or place.parent is None:
            return
        sink = place.parent.node
        target = self.groups[sink.index]
        if self._count(node, sink) + target.root().count > self.most:
            return
        if round_ == 2:
            inside = target.pattern == OpPattern.TUPLE and target.root().pattern <= OpPattern.INJECTIVE
            if group.pattern <= OpPattern.INJECTIVE and inside and self._open(node, sink, _injective):
                self._join(node, sink)
            return
        if group.root() is target.root() or target.pattern == OpPattern.TUPLE:
            return
        condition = _condition(group.pattern, place.pattern, round_)
        if condition is not None and self._open(node, sink, condition):
            self._join(node, sink)

    def _between(self, node: Node, sink: Node) -> list[Node]:
        """The nodes on all ways to the sink, the first and the last left out."""
        found: list[Node] = []
        seen = {sink}
        pending = [user for user, _ in node.outputs]
        while pending:
            one = pending.pop()
            if one not in seen:
                seen.add(one)
                found.append(one)
                pending.extend(user for user, _ in one.outputs)
        return found

    def _count(self, node: Node, sink: Node) -> int:
        return sum(self.groups[n.index].count for n in (node, *self._between(node, sink)))

    def _open(self, node: Node, sink: Node, condition: Condition) -> bool:
        """Whether the groups on all ways, and the sink's, may be computed with the node."""
        if not condition(self.groups[sink.index].root().pattern, True):
            return False
        return all(condition(self.groups[n.index].root().pattern, False) for n in self._between(node, sink))

    def _join(self, node: Node, sink: Node) -> None:
        target = self.groups[sink.index]
        for one in (node, *self._between(node, sink)):
            child, parent = self.groups[one.index].root(), target.root()
            if child is parent:
                continue
            parent.count += child.count
            child.parent = parent
            if child.anchor_ref is not None:
                parent.anchor_ref = child.anchor_ref
                parent.pattern = max(child.pattern, parent.pattern)


def _injective(pattern: int, is_sink: bool) -> bool:
    return pattern <= OpPattern.INJECTIVE


def _condition(pattern: int, way: int, round_: int) -> Condition | None:
    """What must hold of the groups on the ways, for a node of the pattern; None where it is not fused."""
    if pattern == OpPattern.OUT_ELEMWISE_FUSABLE:
        if round_ == 0 and way == OpPattern.ELEMWISE:
            return lambda kind, is_sink: kind <= OpPattern.BROADCAST
        return None
    if pattern <= OpPattern.BROADCAST:
        if way <= OpPattern.COMM_REDUCE:
            return lambda kind, is_sink: (
                kind <= OpPattern.OUT_ELEMWISE_FUSABLE if is_sink else kind <= OpPattern.INJECTIVE
            )
        return None
    if pattern in (OpPattern.INJECTIVE, OpPattern.TUPLE):
        return _injective if round_ == 1 else None
    return None


def groups_of(body: Expr, level: int, most: int) -> dict[Any, Group]:
    """The group of each node of the expression, operators among them; ``most`` nodes are fused together. At level 0
    each has its own."""
    order = graph_of(body)
    partition = _Partition(order, most)
    if level > 0:
        partition.run()
    return {node.ref: group for node, group in zip(order, partition.groups, strict=True)}
