"""``while`` and ``for`` of graph functions.

    while R.abs(x * x - a) > 1e-6:             def condition(x): …
        x = (x + a / x) * 0.5            →     def body(x): …
                                               (x,) = R.while_loop(condition, body, (x,))

The carries are the names that the body assigns, that have a value before the loop, and that are read in a later step or
after it. ``for i in R.range(n)`` counts, ``for x in xs`` and ``for x, y in R.rows(xs, ys)`` go through rows. What
Python would still know after a loop that takes no step is known after it: other names are the loop's own.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pullback.ir.arguments import mapping
from pullback.ir.errors import ArgumentError, ScriptError, ShapeError
from pullback.relax.control import STEP, fori_loop, row, scan, scan_length, while_loop
from pullback.relax.expr import Call, Expr, Function, Tuple, TupleGetItem, Var, VarBinding, const
from pullback.relax.struct_info import StructInfo, TensorStructInfo, format_info, same_info
from pullback.script import relax as R
from pullback.script.parser.branches import as_condition
from pullback.script.parser.flow import Live, here
from pullback.script.parser.scope import Entry, assigned_names
from pullback.tir.expr import PrimExpr

if TYPE_CHECKING:
    from pullback.script.parser.graph import GraphFunctionParser

OPTIONS = ("max_steps", "checkpoint_every")


def while_statement(parser: GraphFunctionParser, node: ast.While, live: Live) -> None:
    """Read a while loop, after which the names ``live`` are read."""
    always = parser.known(node.test)
    if always is not None:
        hint = "the condition reads what the body assigns; for i in R.range(n) counts"
        raise parser.source.error(node.test, f"the condition of this while is always {always}", hint)
    loop = _Loop(parser, node, live)
    with parser.inside("a loop"):
        params = loop.params()
        value = parser.eval(node.test)
        ask = Function(tuple(params), parser.builder.finish(as_condition(parser, node.test, value, "a while")))
    do = loop.body(())
    condition, body = parser.hidden(ask, "condition"), parser.hidden(do, "body")
    loop.bind(lambda carries: while_loop(condition, body, carries, **loop.options))


def for_statement(parser: GraphFunctionParser, node: ast.For, live: Live) -> None:
    """Read a for loop, after which the names ``live`` are read."""
    over = parser.eval(node.iter)
    if isinstance(over, R.Range):
        _counted(parser, node, live, over)
    elif isinstance(over, R.Rows) or (isinstance(over, Expr) and isinstance(over.struct_info, TensorStructInfo)):
        _over_rows(parser, node, live, over if isinstance(over, R.Rows) else R.Rows((over,)))
    else:
        hint = "for i in R.range(n), for x in xs, for x, y in R.rows(xs, ys); a for of Python belongs outside"
        raise parser.source.error(
            node.iter, f"a loop of a graph function cannot go over {ast.unparse(node.iter)}", hint
        )


def _counted(parser: GraphFunctionParser, node: ast.For, live: Live, over: R.Range) -> None:
    """``for i in R.range(start, stop)``."""
    (name,) = _targets(parser, node, 1, live)
    with parser.evaluator.blame(node.iter):
        start, count = over.start, over.stop
        if not (type(start) is int and start == 0):
            count = over.stop - over.start
        count = max(0, count) if type(count) is int else count
        if isinstance(count, Expr):
            count = parser.atom(count)
        if isinstance(start, Expr):
            start = parser.atom(start)
    loop = _Loop(parser, node, live)
    loop.options = {k: v for k, v in over.options.items() if v is not None} | loop.options

    def number(step: Var) -> None:
        if type(start) is int and start == 0:
            return
        value = start
        if isinstance(start, PrimExpr):
            value = R.reshape(R.shape_to_tensor(R.shape([start])), ())
        elif type(start) is int:
            value = const(start, "int64")
        with parser.evaluator.blame(node.iter):
            parser.bind(name, node.iter, step + value, None)

    do = loop.body([(name, STEP)], lambda rows: number(rows[0]))
    body = parser.hidden(do, "body")
    loop.bind(lambda carries: fori_loop(count, body, carries, **loop.options))


def _over_rows(parser: GraphFunctionParser, node: ast.For, live: Live, over: R.Rows) -> None:
    """``for x, y in R.rows(xs, ys)``: a scan that stacks nothing."""
    names = _targets(parser, node, len(over.arrays), live)
    with parser.evaluator.blame(node.iter):
        arrays = [parser.atom(a) for a in over.arrays]
        scan_length([a.struct_info for a in arrays], None)
    loop = _Loop(parser, node, live)
    if "max_steps" in loop.options:
        raise parser.source.error(node, "a loop over rows has as many steps as there are rows", "leave max_steps out")
    rows = [(n, row(a.struct_info)) for n, a in zip(names, arrays, strict=True)]
    do = loop.body(rows, stacks=True)
    body = parser.hidden(do, "body")
    loop.bind(lambda carries: scan(body, carries, arrays, **loop.options), stacks=True)


def _targets(parser: GraphFunctionParser, node: ast.For, count: int, live: Live) -> list[ast.Name]:
    """The names that a for gives its values."""
    targets = list(node.target.elts) if isinstance(node.target, ast.Tuple | ast.List) else [node.target]
    names = [t for t in targets if isinstance(t, ast.Name)]
    if not len(names) == len(targets) == count:
        message = f"{count} name{'s' * (count > 1)} {'are' if count > 1 else 'is'} expected here"
        raise parser.source.error(node.target, message, "for i in R.range(n), for x, y in R.rows(xs, ys)")
    for target in names:
        if target.id in live:
            hint = "after a loop that took no step it has no value: assign another name in the body"
            raise parser.source.error(target, f"{target.id!r} is read after the loop", hint)
    return names


class _Loop:
    """A loop that is being read: its statements, options and carries."""

    def __init__(self, parser: GraphFunctionParser, node: ast.While | ast.For, live: Live) -> None:
        self.parser, self.node = parser, node
        if node.orelse:
            hint = "write what stands there after the loop"
            raise parser.source.error(node.orelse[0], "a loop has no else here", hint)
        for part in here(node.body):
            if isinstance(part, ast.Break | ast.Continue):
                raise parser.unsupported(part)
            if isinstance(part, ast.Return):
                hint = "assign a name that has a value before the loop, and return it after the loop"
                raise parser.source.error(part, "return stands inside a loop", hint)
        self.options, self.statements = _options(parser, node.body)
        self.live = parser.flow.through(node, parser.flow.at_head(node, live))
        targets = set(assigned_names([ast.Assign([node.target], node.iter)])) if isinstance(node, ast.For) else set()
        names = [n for n in dict.fromkeys(assigned_names(self.statements)) if n in self.live - targets]
        for name in names:
            if parser.scope.own(name) is None and name in live:
                hint = f"give {name} a value before the loop: a loop may take no step"
                raise parser.source.error(node, f"{name!r} is read after this loop, and only the loop assigns it", hint)
        self.names = [n for n in names if parser.scope.own(n) is not None]
        if not self.names:
            hint = "what it computes is given to names that have a value before it, and that are read after it"
            raise parser.source.error(node, "nothing that this loop assigns is read", hint)
        self.before = self.entries()
        with parser.evaluator.blame(node):
            self.values = [parser.atom(e.value) for e in self.before]

    def entries(self) -> list[Entry]:
        """What the carries' names stand for now."""
        found = [self.parser.scope.own(n) for n in self.names]
        return [entry for entry in found if entry is not None]

    def params(self) -> list[Var]:
        """The carries as parameters of one of the loop's functions, visible in it."""
        params = []
        for name, value, entry in zip(self.names, self.values, self.before, strict=True):
            params.append(Var(name, value.struct_info, span=entry.span))
            self.parser.scope.define(name, params[-1], entry.span)
        self.parser.bound.update(params)
        return params

    def body(
        self,
        rows: Sequence[tuple[ast.Name, StructInfo]],
        begin: Callable[[list[Var]], None] | None = None,
        stacks: bool = False,
    ) -> Function:
        """The function of one step; a loop that counts gets the number first, others their rows last."""
        parser = self.parser
        with parser.inside("a loop"):
            carries, others = self.params(), []
            for name, info in rows:
                others.append(Var(name.id, info, span=parser.source.span(name)))
                parser.scope.define(name.id, others[-1], others[-1].span)
            parser.bound.update(others)
            if begin is not None:
                begin(others)
            parser.statements(self.statements, self.live)
            after = self.entries()
            with parser.evaluator.blame(self.node):
                values = [parser.graph_value(e.value) for e in after]
            self.check_types(values, after)
            result = Tuple(tuple(values))
            body = parser.builder.finish(Tuple((result, Tuple(()))) if stacks else result)
        params = [*carries, *others] if begin is None else [*others, *carries]
        return Function(tuple(params), body, span=parser.source.span(self.node))

    def check_types(self, values: Sequence[Expr], after: Sequence[Entry]) -> None:
        """Raise, listing all of them, unless the carries have the types that they had."""
        found = []
        for name, old, value, was, now in zip(self.names, self.values, values, self.before, after, strict=True):
            if not same_info(old.struct_info, value.struct_info):
                places = [e.span.caret() if e.span is not None else "" for e in (was, now)]
                infos = format_info(old.struct_info), format_info(value.struct_info)
                found.append(f"{name!r} begins as {infos[0]}:\n{places[0]}\nand becomes {infos[1]}:\n{places[1]}")
        if found:
            hint = "a name keeps its type from step to step: begin with it, or convert with R.astype"
            message = "a loop changes types: " + "\n".join(found) + "\nthe loop:"
            raise ShapeError(message, span=self.parser.source.span(self.node), hint=hint)

    def bind(self, call: Callable[[list[Expr]], Call], stacks: bool = False) -> None:
        """Bind the loop, and give the names what is after it."""
        parser = self.parser
        with parser.evaluator.blame(self.node):
            whole = parser.hidden(call(self.values), "looped")
            carries = parser.hidden(TupleGetItem(whole, 0), "carries") if stacks else whole
            for k, (name, entry) in enumerate(zip(self.names, self.before, strict=True)):
                item = TupleGetItem(carries, k)
                parser.builder.emit_binding(VarBinding(parser.named(name, item.struct_info, entry.span), item))


def _options(parser: GraphFunctionParser, body: list[ast.stmt]) -> tuple[dict[str, Any], list[ast.stmt]]:
    """What ``R.loop_attr`` says, and the rest of the body."""
    first = body[0]
    if not (isinstance(first, ast.Expr) and parser.is_call_of(first.value, R.loop_attr)):
        return {}, body
    call: Any = first.value
    given = parser.eval(call.args[0]) if len(call.args) == 1 and not call.keywords else {}
    with parser.evaluator.blame(first):
        options = dict(mapping("the options of a loop", given))
        unknown = next((k for k in options if k not in OPTIONS), None)
        if unknown is not None or not options:
            hint = 'write R.loop_attr({"max_steps": 100}); its options are ' + " and ".join(OPTIONS)
            raise ArgumentError(
                f"a loop has no option {unknown!r}" if options else "R.loop_attr takes a dict", hint=hint
            )
    if len(body) == 1:
        raise ScriptError("this loop has no body", span=parser.source.span(first), hint="write what a step does")
    return options, body[1:]
