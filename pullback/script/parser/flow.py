"""Which names are read later: the liveness of the names of a function, found in its syntax tree.

A name is *live* at a place if some way from there reads it before it is assigned. Of the names that a branch or a loop
assigns, those that are live after it are its results.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence

from pullback.script.parser.scope import assigned_names

Live = frozenset[str]
NOTHING: Live = frozenset()
CONTROL = (ast.If, ast.While, ast.For)


class Flow:
    """Follows the statements of a function. ``known(test)`` is what a condition is that Python decides, else None;
    ``behind(name)`` are the names that the function of that name reads around it."""

    def __init__(self, known: Callable[[ast.expr], bool | None], behind: Callable[[str], Iterable[str]]) -> None:
        self.known, self.behind = known, behind

    def reads(self, *nodes: ast.AST | None) -> Live:
        """The names that expressions read."""
        found: set[str] = set()
        for node in nodes:
            for part in ast.walk(node) if node is not None else ():
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                    found.add(part.id)
        return frozenset(found)

    def through(self, node: ast.stmt, live: Live) -> Live:
        """The names that are read where these are read: functions that the statement leaves alone read what is around
        them."""
        return live.union(*map(self.behind, live - set(assigned_names([node]))))

    def after(self, body: Sequence[ast.stmt], out: Live) -> list[Live]:
        """For each statement, the names that are live after it; ``out`` are those after the last one."""
        found = [out]
        for node in reversed(body[1:]):
            found.append(self.before([node], found[-1]))
        return found[::-1]

    def before(self, body: Sequence[ast.stmt], out: Live) -> Live:
        """The names that are live before the statements."""
        for node in reversed(body):
            out = self._before(node, out)
        return out

    def _before(self, node: ast.stmt, out: Live) -> Live:
        if isinstance(node, ast.Return):
            return self.reads(node.value)
        if isinstance(node, ast.If):
            known = self.known(node.test)
            if known is not None:
                return self.before(node.body if known else node.orelse, out)
            return self.reads(node.test) | self.before(node.body, out) | self.before(node.orelse, out)
        if isinstance(node, ast.While | ast.For):
            return self.at_head(node, out) | (self.reads(node.iter) if isinstance(node, ast.For) else NOTHING)
        if isinstance(node, ast.With):
            return self.reads(*(i.context_expr for i in node.items)) | self.before(node.body, out)
        if isinstance(node, ast.FunctionDef):
            return (out - {node.name}) | self.free(node)
        if isinstance(node, ast.AugAssign):
            return out | self.reads(node.value) | set(assigned_names([node]))
        if isinstance(node, ast.Assign | ast.AnnAssign):
            return (out - set(assigned_names([node]))) | self.reads(node.value)
        return out | self.reads(node)

    def at_head(self, node: ast.While | ast.For, out: Live) -> Live:
        """The names that are live where a loop decides whether there is one more step."""
        test = self.reads(node.test) if isinstance(node, ast.While) else NOTHING
        targets = set(assigned_names([ast.Assign([node.target], node.iter)])) if isinstance(node, ast.For) else set()
        first = self.before(node.body, NOTHING)
        return out | test | (first - targets)

    def free(self, node: ast.FunctionDef) -> Live:
        """The names that a function inside reads around it."""
        own = {a.arg for a in node.args.args} | set(assigned_names(node.body)) | {node.name}
        read: set[str] = set(self.reads(*node.decorator_list))
        for part in here(node.body):
            if isinstance(part, ast.FunctionDef):
                read |= self.free(part)
            elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                read.add(part.id)
        return frozenset(read - own)

    # -- returns

    def always_returns(self, body: Sequence[ast.stmt]) -> bool:
        """Whether every way through the statements ends with a return."""
        return any(map(self._returns, body))

    def _returns(self, node: ast.stmt) -> bool:
        if not isinstance(node, ast.If):
            return isinstance(node, ast.Return)
        known = self.known(node.test)
        if known is not None:
            return self.always_returns(node.body if known else node.orelse)
        return self.always_returns(node.body) and self.always_returns(node.orelse)

    def returns(self, body: Iterable[ast.stmt]) -> Iterator[ast.Return]:
        """The returns in branches."""
        for node in body:
            if isinstance(node, ast.Return):
                yield node
            elif isinstance(node, ast.If):
                known = self.known(node.test)
                yield from self.returns(node.body if known is not False else ())
                yield from self.returns(node.orelse if known is not True else ())


def here(body: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    """The nodes of statements, without what is inside of functions."""
    rest: list[ast.AST] = list(body)
    while rest:
        node = rest.pop()
        yield node
        if not isinstance(node, ast.FunctionDef):
            rest += ast.iter_child_nodes(node)
