"""Calls of one op on one input, each with the elementwise ops that follow: combined, they are one branch.

A :class:`Combiner` says which calls go together and how they are combined, level by level, and what of the combined
result each branch has had. Branches are combined as far down as their ops and attributes are the same.
"""

from __future__ import annotations

from typing import Any

from pullback.relay.expr import Call, Expr, Function, Var
from pullback.relay.op.registry import Op, OpPattern
from pullback.relay.transform.parts import is_call
from pullback.relay.visitor import ExprMutator, children, post_order

Branch = list[Call]


class Combiner:
    """How calls of the operator ``name`` are combined."""

    name: str

    def __init__(self, fewest: int) -> None:
        self.fewest = fewest
        self._bound: set[Any] = set()

    def supports(self, call: Call) -> bool:
        return True

    def together(self, a: Call, b: Call) -> bool:
        """Whether two calls of the same input may be one."""
        raise NotImplementedError

    def combined(self, branches: list[Branch]) -> Call:
        """The one call for the first calls of all branches."""
        raise NotImplementedError

    def fits(self, a: Call, b: Call, index: int) -> bool:
        """Whether the argument ``index`` of two calls in the same place of their branches can be joined."""
        raise NotImplementedError

    def following(self, data: Expr, calls: list[Call], parent: int) -> Call:
        """The one call for calls in the same place, whose argument ``parent`` is ``data`` combined."""
        raise NotImplementedError

    def parts(self, data: Expr, branches: list[Branch], depth: int) -> list[Expr]:
        """What the call at ``depth`` of each branch has in the combined ``data``."""
        raise NotImplementedError

    def run(self, function: Function) -> Function:
        replaced: dict[Any, Expr] = {}
        for group in self._groups(function):
            if len(group) >= self.fewest:
                self._combine(group, replaced)
        return _Replace(replaced).visit(function) if replaced else function

    def _groups(self, function: Function) -> list[list[Branch]]:
        self._bound = _apart(function, self.name)
        users: dict[Any, list[Call]] = {}
        roots: dict[Any, list[Call]] = {}
        elsewhere: set[Any] = set()  # read by what is no call
        for node in post_order(function):
            if not isinstance(node, Call):
                elsewhere.update(children(node))
            elif is_call(node, self.name) and self.supports(node) and self._movable(node, node.args[0]):
                roots.setdefault(node.args[0], []).append(node)
                users.setdefault(node.args[0], []).append(node)
            else:
                for arg in node.args:
                    users.setdefault(arg, []).append(node)
        found: list[list[Branch]] = []
        for calls in roots.values():
            groups: list[list[Branch]] = []
            for call in calls:
                branch = self._branch(call, users, elsewhere)
                group = next((g for g in groups if self.together(call, g[0][0])), None)
                if group is None:
                    groups.append([branch])
                else:
                    group.append(branch)
            found.extend(groups)
        return found

    def _movable(self, call: Call, data: Expr) -> bool:
        """Whether a call can stand where another one reads ``data``."""
        return not any(arg in self._bound for arg in call.args if arg is not data)

    def _branch(self, call: Call, users: dict[Any, list[Call]], elsewhere: set[Any]) -> Branch:
        """The call, and what follows it as long as each has one user that is elementwise."""
        branch = [call]
        while len(users.get(branch[-1], [])) == 1 and branch[-1] not in elsewhere:
            user = users[branch[-1]][0]
            if not isinstance(user.op, Op) or user.op.pattern > OpPattern.BROADCAST:
                break
            if not self._movable(user, branch[-1]):
                break
            branch.append(user)
        return branch

    def _combine(self, branches: list[Branch], replaced: dict[Any, Expr]) -> None:
        data = self.combined(branches)
        depth = 1
        while depth < min(map(len, branches)):
            first = branches[0][depth]
            parent = next(i for i, arg in enumerate(first.args) if arg is branches[0][depth - 1])
            if not all(self._level(first, branch, depth, parent) for branch in branches[1:]):
                break
            data = self.following(data, [branch[depth] for branch in branches], parent)
            depth += 1
        for branch, part in zip(branches, self.parts(data, branches, depth - 1), strict=True):
            replaced[branch[depth - 1]] = part

    def _level(self, first: Call, branch: Branch, depth: int, parent: int) -> bool:
        call = branch[depth]
        alike = call.op is first.op and dict(call.attrs) == dict(first.attrs) and len(call.args) == len(first.args)
        if not alike or call.args[parent] is not branch[depth - 1]:
            return False
        return all(i == parent or self.fits(first, call, i) for i in range(len(first.args)))


def _apart(function: Function, name: str) -> set[Any]:
    """The expressions that depend on a variable which is bound inside, or on a call of the operator: other branches
    may stand outside of that binding, or be that call."""
    found: set[Any] = set()
    for node in post_order(function.body):
        bound = isinstance(node, Var) and node not in function.params
        if bound or is_call(node, name) or any(child in found for child in children(node)):
            found.add(node)
    return found


class _Replace(ExprMutator):
    """Puts expressions in the places of others; those are looked at again, as they hold others that are replaced."""

    def __init__(self, replaced: dict[Any, Expr]) -> None:
        super().__init__()
        self.replaced = replaced

    def visit_call(self, call: Call) -> Expr:
        other = self.replaced.get(call)
        return super().visit_call(call) if other is None else self.visit(other)
