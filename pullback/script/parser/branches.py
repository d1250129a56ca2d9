"""``if``, ``elif`` and ``else`` of graph functions.

    if R.sum(x) > 0.0:                   y = If(gv, y = R.exp(x) … y, y = R.sin(x) … y)
        y = R.exp(x)               →
    else:
        y = R.sin(x)

The results are the names that the branches assign and that are read later. A name that only one of them assigns keeps
its value in the other. Where Python knows the condition, only the branch that it chooses is read.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.ir.errors import ScriptError, ShapeError
from pullback.relax.expr import Expr, If, SeqExpr, Tuple, TupleGetItem, VarBinding, check_condition
from pullback.relax.struct_info import format_info, same_info
from pullback.script.parser.flow import Live
from pullback.script.parser.scope import Entry, assigned_names
from pullback.tir.expr import PrimExpr

if TYPE_CHECKING:
    from pullback.script.parser.graph import GraphFunctionParser


def if_statement(parser: GraphFunctionParser, node: ast.If, live: Live) -> Expr | None:
    """Read an if, after which the names ``live`` are read; what it returns, if it does."""
    value = parser.eval(node.test)
    if isinstance(value, bool | np.bool_):
        return parser.statements(node.body if value else node.orelse, live)
    condition = as_condition(parser, node.test, value, "an if")
    if next(parser.flow.returns([node]), None) is not None:
        return _returned(parser, node, condition)
    live = parser.flow.through(node, live)
    names = _results(node, live)
    bodies = [_Branch(parser, node, k, names, live) for k in range(2)]
    _check_types(parser, node, names, bodies)
    with parser.evaluator.blame(node):
        result = If(condition, *(b.body for b in bodies))
        if len(names) == 1:
            var = parser.named(names[0], result.struct_info, bodies[0].places[0].span)
            parser.builder.emit_binding(VarBinding(var, result))
            return None
        whole = parser.hidden(result, "chosen")
        for k, name in enumerate(names):
            item = TupleGetItem(whole, k)
            var = parser.named(name, item.struct_info, bodies[0].places[k].span)
            parser.builder.emit_binding(VarBinding(var, item))
    return None


def as_condition(parser: GraphFunctionParser, node: ast.expr, value: Any, statement: str) -> Expr:
    """A condition as a variable or a constant."""
    with parser.evaluator.blame(node):
        if isinstance(value, PrimExpr):
            hint = "a size becomes a tensor with R.shape_to_tensor(R.shape([n]))"
            raise ScriptError(f"the condition of {statement} must be a bool scalar, got a symbolic scalar", hint=hint)
        if not isinstance(value, Expr):
            hint = f"compare: {ast.unparse(node)} > 0, or {ast.unparse(node)} is not None"
            raise ScriptError(f"the condition of {statement} must be a bool, got {value!r:.80}", hint=hint)
        condition = parser.graph_value(value)
        check_condition(condition.struct_info, f"the condition of {statement}")
        return parser.atom(condition)


def _returned(parser: GraphFunctionParser, node: ast.If, condition: Expr) -> Expr:
    """An if whose branches return."""
    found = next(parser.flow.returns([node]))
    if parser.no_return is not None:
        parser.returned(found)
    if not (parser.flow.always_returns(node.body) and parser.flow.always_returns(node.orelse)):
        hint = "end both branches with return, or assign one name in both and return it after the if"
        raise parser.source.error(found, "only some ways through this if return", hint)
    bodies: list[SeqExpr] = []
    for statements in (node.body, node.orelse):
        with parser.inside(None):
            result = parser.statements(statements, frozenset())
            bodies.append(parser.builder.finish(result))
    with parser.evaluator.blame(node):
        return If(condition, *bodies)


def _results(node: ast.If, live: Live) -> list[str]:
    """The names of the results, in the order in which the text first assigns them."""
    assigned = list(dict.fromkeys(assigned_names([*node.body, *node.orelse])))
    names = [n for n in assigned if n in live and n != "_"]
    if not names:  # of an if that nobody needs, the name with which both branches end
        ends = [_ending(b) for b in (node.body, node.orelse)]
        names = [ends[0]] if ends[0] is not None and ends[0] == ends[1] else []
    return names


def _ending(body: Sequence[ast.stmt]) -> str | None:
    last = body[-1] if body else None
    target = last.targets[0] if isinstance(last, ast.Assign) else None
    return target.id if isinstance(target, ast.Name) else None


class _Branch:
    """A branch that has been read: its body, and where its results were assigned."""

    def __init__(self, parser: GraphFunctionParser, node: ast.If, which: int, names: list[str], live: Live) -> None:
        statements = node.orelse if which else node.body
        self.places: list[Entry] = []
        for statement in reversed(statements):
            if not isinstance(statement, ast.Assign) or _ending([statement]) not in names:
                break
            parser.unbound.add(statement)
        with parser.inside(parser.no_return or "an if that goes on"):
            parser.statements(statements, live | set(names))
            if not names:
                hint = "assign a name in both branches, and read it after the if"
                raise parser.source.error(node, "nothing that this if assigns is read", hint)
            values = []
            for name in names:
                entry = parser.scope.own(name)
                if entry is None:
                    raise _missing(parser, node, which, name)
                self.places.append(entry)
                with parser.evaluator.blame(node):
                    values.append(parser.graph_value(entry.value))
            self.infos = [v.struct_info for v in values]
            self.body = parser.builder.finish(values[0] if len(values) == 1 else Tuple(tuple(values)))


def _missing(parser: GraphFunctionParser, node: ast.If, which: int, name: str) -> ScriptError:
    other = "else" if which else "if"
    if which and not node.orelse:
        other, hint = "else", f"give {name} a value before the if, or write an else that assigns it"
    else:
        hint = f"assign {name} in both branches, or give it a value before the if"
    message = f"{name!r} is read after this if, and the {other} branch does not assign it"
    return parser.source.error(node, message, hint)


def _check_types(parser: GraphFunctionParser, node: ast.If, names: list[str], bodies: list[_Branch]) -> None:
    found = []
    for k, name in enumerate(names):
        infos = [b.infos[k] for b in bodies]
        if not same_info(*infos):
            places = [f"{format_info(b.infos[k])}{_place(b.places[k])}" for b in bodies]
            found.append(f"{name!r} is {places[0]}\nor {places[1]}")
    if found:
        hint = "both branches give a name the same type: R.astype converts a dtype, R.broadcast_to a shape"
        message = "the branches of an if differ in type: " + "\n".join(found) + "\nthe if:"
        raise ShapeError(message, span=parser.source.span(node), hint=hint)


def _place(entry: Entry) -> str:
    return f":\n{entry.span.caret()}" if entry.span is not None else ""
