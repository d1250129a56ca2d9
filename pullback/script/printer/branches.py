"""Branches of a graph function as script: ``if``, ``elif`` and ``else`` whose last assignments give the results.

A variable that a branch ends with has the result's name from its binding on; other values are assigned at the end of
the branch, where the parser makes no bindings of assignments that compute nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pullback.relax.analysis import used_vars
from pullback.relax.expr import (
    Binding,
    Call,
    DataflowVar,
    Expr,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from pullback.script.printer.layout import INDENT, Lines
from pullback.script.printer.uses import Dead, Uses

if TYPE_CHECKING:
    from pullback.script.printer.graph import GraphPrinter


@dataclass
class _Plan:
    """How a branch gives the results: ``direct`` says after which binding one has its value already, ``kept`` are those
    that it does not change, ``last`` those that are assigned at its end."""

    direct: dict[int, int]
    kept: set[int]
    last: list[int]

    def order(self) -> list[int]:
        return [*sorted(self.direct, key=self.direct.__getitem__), *self.last]


class IfPrinter:
    """Writes one ``If`` whose results are the variables ``targets``: the items of its value if that ``is_group``."""

    def __init__(
        self, printer: GraphPrinter, node: If, targets: Sequence[Var], is_group: bool, uses: Uses, place: int
    ) -> None:
        self.printer, self.node, self.targets, self.uses = printer, node, targets, uses
        self.after = place + len(targets) if is_group else place
        self.is_read = is_group or uses.last.get(targets[0], -1) > place
        self.branches = (node.then, node.otherwise)
        values = [b.body for b in self.branches]
        self.ends = [list(v.fields) if is_group and isinstance(v, Tuple) else [v] for v in values]
        self.names: list[str] = []
        self.shared: list[Var | None] = []  # who has the name of a result before the if, and is read in it

    def write(self, lines: Lines) -> None:
        printer = self.printer
        printer.add(lines, lambda: f"if {printer.expr(self.node.condition)}:")
        is_dead, read = self.uses.dead(self.after), set(self.uses.read(self.node))
        for k, target in enumerate(self.targets):
            before = dict(printer.names.owners)
            name = printer.name(target, partial(self._may_take, is_dead, k))
            owners = before.get(name, ())
            self.names.append(name)
            self.shared.append(next((o for o in owners if o in read), None))
            printer.names.owners[name] = (*owners, target)
        results = set(self.targets)
        uses = [Uses(b, lambda s: s not in results and is_dead(s), printer.behind) for b in self.branches]
        plans = [self.plan(k, uses[k]) for k in range(2)]
        everything = _Plan({}, set(), list(range(len(self.targets))))
        order = list(dict.fromkeys([*plans[0].order(), *plans[1].order()]))
        if order != everything.last or not self.is_read or not (plans[0].order() or self.node.then.blocks):
            plans[0] = everything
        if not self.is_read:
            plans[1] = everything
        bodies = [self.body(k, uses[k], plans[k], lines.level + 1) for k in range(2)]
        lines.extend(bodies[0])
        if bodies[1].lines:
            lines.lines += _otherwise(bodies[1], lines.level)

    def _may_take(self, is_dead: Dead, number: int, var: Any) -> bool:
        """Whether a result may have the name of a variable."""
        return is_dead(var) and changes(self.ends, number, var)

    def plan(self, which: int, uses: Uses) -> _Plan:
        branch, ends = self.branches[which], self.ends[which]
        bound = {b.var: (place, b) for place, b in enumerate(branch.bindings)}
        plan = _Plan({}, set(), [])
        for k, (value, old) in enumerate(zip(ends, self.shared, strict=True)):
            place, binding = bound.get(value, (0, None)) if isinstance(value, Var) else (0, None)
            if value is old:
                plan.kept.add(k)
            elif (
                binding is not None and sum(v is value for v in ends) == 1 and _takes(binding, branch, old, uses, place)
            ):
                plan.direct[k] = place
            else:
                plan.last.append(k)
        return plan

    def body(self, which: int, uses: Uses, plan: _Plan, level: int) -> Lines:
        printer, lines = self.printer, Lines(level)
        ends = self.ends[which]
        with printer.names.saved():
            printer.forced.update({end: self.names[k] for k in plan.direct if isinstance(end := ends[k], Var)})
            printer.blocks(self.branches[which], uses, lines)
            for k in plan.last:
                printer.add(lines, partial(self._assigned, k, ends[k]))
        return lines

    def _assigned(self, number: int, end: Expr) -> str:
        return f"{self.names[number]} = {self.printer.expr(end)}"


def changes(ends: Sequence[Sequence[Expr]], number: int, var: Any) -> bool:
    """Whether a result may have the name of this variable: some branch gives the result another value, and no branch
    reads the variable for another result, as the name may stand for the result by then."""
    for values in ends:
        for k, value in enumerate(values):
            if not (k == number and value is var) and _reads(value, var):
                return False
    return any(values[number] is not var for values in ends)


def _takes(binding: Binding, branch: SeqExpr, old: Var | None, uses: Uses, place: int) -> bool:
    """Whether the variable of a binding may have the name of a result, which was that of ``old``."""
    value = binding.value
    if isinstance(binding.var, DataflowVar) or (
        not isinstance(binding, MatchCast) and not isinstance(value, (Call, TupleGetItem, If))
    ):
        return False
    if old is None:
        return True
    if uses.last.get(old, -1) > place:
        return False
    if isinstance(value, If):
        return changes([[value.then.body], [value.otherwise.body]], 0, old)
    if isinstance(value, TupleGetItem):  # of an if that gives several results, perhaps
        sources = (b.value for b in branch.bindings if b.var is value.tuple_value)
        return not any(isinstance(s, If) and _reads(s, old) for s in sources)
    return True


def _reads(value: Any, var: Any) -> bool:
    return any(v is var for v in used_vars(value))


def _otherwise(body: Lines, level: int) -> list[str]:
    """The lines of an else; of an else that is one if, those of an elif."""
    prefix = INDENT * (level + 1)
    inner = [line.removeprefix(prefix) for line in body.lines]
    if inner[0].startswith("if ") and all(line.startswith((INDENT, "elif ", "else:")) for line in inner[1:]):
        return [INDENT * level + ("el" if k == 0 else "") + line for k, line in enumerate(inner)]
    return [f"{INDENT * level}else:", *body.lines]
