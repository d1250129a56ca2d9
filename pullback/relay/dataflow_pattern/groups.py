"""All places of an expression that match a pattern, as groups of nodes that do not overlap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.relay.adt import Match
from pullback.relay.dataflow_pattern.graph import DataflowGraph
from pullback.relay.dataflow_pattern.matcher import Found, Matcher
from pullback.relay.dataflow_pattern.patterns import (
    AltPattern,
    CallPattern,
    ConstantPattern,
    DFPattern,
    DominatorPattern,
    ExprPattern,
    FunctionPattern,
    TuplePattern,
    patterns_of,
)
from pullback.relay.expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var
from pullback.relay.visitor import ExprMutator, children, post_order

PARTITIONED = "PartitionedFromPattern"  # the attribute of functions that a partition makes


@dataclass
class Group:
    """A place that matches: ``root`` is its result, ``args`` what it is computed from, ``function`` that computation,
    ``found`` what the parts of the pattern match."""

    root: Expr
    found: Found
    args: list[Any]
    function: Function
    name: str


class _Extractor(ExprMutator):
    """Copies the nodes of a group, with parameters for its arguments, and names them all in one word."""

    def __init__(self, params: dict[Any, Var]) -> None:
        super().__init__()
        self.memo_map.update(params)
        self.nodes: list[Any] = []
        self.name = ""

    def dispatch(self, expr: Any) -> Any:
        made = super().dispatch(expr)
        self.nodes.append(expr)
        self.name += _word(expr)
        return made


def _word(expr: Any) -> str:
    if isinstance(expr, Call):
        return f"{expr.op.name}_" if isinstance(expr.op, Op) else "Call_"
    if isinstance(expr, TupleGetItem):
        return f"TupleGetItem{expr.index}_"
    words = ((Tuple, "Tuple_"), (Function, "Function"), (Let, "Let_"), (If, "If_"), (Match, "Match_"))
    return next((word for kind, word in words if isinstance(expr, kind)), "")


class Groups:
    """The groups of an expression, those near its result first. ``of_root`` has them by their results."""

    def __init__(self, pattern: DFPattern, expr: Any, module: IRModule | None = None) -> None:
        self.pattern = pattern
        self.graph = DataflowGraph(expr)
        self.matcher = Matcher(self.graph, module)
        self.of_root: dict[Any, Group] = {}
        self._taken: set[Any] = set()
        self._count = 0  # of groups that were tried: names of parameters
        self._find()

    def _find(self) -> None:
        partitioned: set[Any] = set()
        for node in reversed(self.graph.nodes):
            if isinstance(node, Function) and PARTITIONED in node.attrs:
                partitioned.update([node, *post_order(node.body)])
            if node in self._taken or node in partitioned or isinstance(node, Op):
                continue
            found = self.matcher.match(self.pattern, node)
            if found is not None:
                self._add(node, found)

    def _add(self, root: Any, found: Found) -> None:
        args = list(dict.fromkeys(self._args(found)))
        params = {arg: Var(f"FunctionVar_{self._count}_{i}") for i, arg in enumerate(args)}
        self._count += 1
        extractor = _Extractor(params)
        body = extractor.visit(root)
        nodes = {node for node in extractor.nodes if not _is_everywhere(node)}
        if any(node in self._taken or not self._is_inside(node, root, nodes) for node in nodes):
            return
        self._taken.update(nodes)
        function = Function(tuple(params.values()), body)
        self.of_root[root] = Group(root, found, args, function, extractor.name)

    def _is_inside(self, node: Any, root: Any, nodes: set[Any]) -> bool:
        """Whether nothing uses the node but the group, and what the group is computed from."""
        if node is root:
            return True
        users = self.graph.users[node]
        return all(user in nodes or self.graph.dominates(root, user) for user in users)

    def _args(self, found: Found) -> Iterator[Any]:
        """What the group is computed from, in the order of the pattern."""
        inner = self._not_args(found)
        for pattern in patterns_of(self.pattern):
            for match in found.get(pattern, ()):
                if isinstance(pattern, TuplePattern) and pattern.fields is None:
                    candidates = match.fields
                elif isinstance(pattern, CallPattern) and pattern.args is None:
                    candidates = match.args
                else:
                    candidates = () if pattern.parts else (match,)
                for expr in candidates:
                    if expr not in inner and not isinstance(expr, (Op, Function)) and not self._embedded(expr, pattern):
                        yield expr

    def _not_args(self, found: Found) -> set[Any]:
        """Expressions that belong to the group although wildcards match them: on the path to a dominator, and in a
        function."""
        inner: set[Any] = set()
        for pattern in patterns_of(self.pattern):
            if isinstance(pattern, DominatorPattern):
                on_path = [*found.get(pattern.parent, ()), *found.get(pattern.path, ())]
                inner.update(node for node in on_path if children(node))
            elif isinstance(pattern, FunctionPattern):
                inner.update(n for f in found.get(pattern, ()) for n in (*f.params, *post_order(f.body)))
        return inner

    def _embedded(self, expr: Any, pattern: DFPattern) -> bool:
        """Whether the expression is a constant that the pattern asks for: it becomes a part of the function."""
        if not isinstance(expr, Constant):
            return False
        if isinstance(pattern, AltPattern):
            return self._embedded(expr, pattern.left) or self._embedded(expr, pattern.right)
        return isinstance(pattern, ConstantPattern) or (
            isinstance(pattern, ExprPattern) and isinstance(pattern.expr, Constant)
        )


def _is_everywhere(node: Any) -> bool:
    """What groups may have in common."""
    return isinstance(node, (Op, Function, Constant))
