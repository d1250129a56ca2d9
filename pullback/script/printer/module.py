"""The printer's way in: any node or module as text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pullback.ir.depth import deep
from pullback.ir.module import GLOBAL_SYMBOL, IRModule, without_symbol
from pullback.relax.analysis import free_vars
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Binding, BindingBlock, Call, Expr, Function, If, SeqExpr, Tuple, TupleGetItem
from pullback.relax.struct_info import StructInfo
from pullback.script.printer.graph import GraphPrinter
from pullback.script.printer.layout import Lines, indented
from pullback.script.printer.literals import attribute
from pullback.script.printer.loops import LoopPrinter
from pullback.script.printer.names import Names, identifier
from pullback.script.printer.scalars import ScalarPrinter
from pullback.script.printer.types import info_text, quoted
from pullback.script.printer.uses import Uses
from pullback.tir.expr import Buffer, PrimExpr
from pullback.tir.stmt import PrimFunc, Stmt


@deep
def script(node: Any, *, name: str | None = None, header: bool = True, types: bool = False) -> str:
    """A module, function, or part of one as script text.

    ``name`` is the function's name where it stands alone; ``header`` writes the import line; ``types`` the type of
    every variable of a graph function. Modules and functions read back structurally equal; parts are for people.
    """
    if isinstance(node, IRModule):
        lines = _module(node, types)
    elif isinstance(node, Function | PrimFunc):
        own = node.name if isinstance(node, PrimFunc) else node.attrs.get(GLOBAL_SYMBOL)
        lines = _function(node, name or own or "main", (), types)
    else:
        return _part(node, types)
    text = lines.text() + "\n"
    return _header(text) + text if header else text


def _header(text: str) -> str:
    """The import of those of I, R and T that the text uses."""
    modules = (("I", "ir"), ("R", "relax"), ("T", "tir"))
    used = [f"{module} as {short}" for short, module in modules if f"{short}." in text]
    return f"from pullback.script import {', '.join(used)}\n\n\n"


def _module(module: IRModule, types: bool) -> Lines:
    lines = Lines()
    lines.add("@I.ir_module")
    lines.add("class Module:")
    with indented(lines):
        if module.attrs:
            lines.add(f"I.module_attrs({attribute(module.attrs, ScalarPrinter(Names()))})")
        elif not module.functions:
            lines.add("pass")
        for i, (name, function) in enumerate(module.items()):
            if i or module.attrs:
                lines.lines.append("")
            lines.extend(_function(function, name, tuple(module.functions), types, lines.level))
    return lines


def _function(function: Any, name: str, functions: tuple[str, ...], types: bool, level: int = 0) -> Lines:
    if function.attrs.get(GLOBAL_SYMBOL) == name:
        function = replace(function, attrs=without_symbol(function.attrs))
    python_name = identifier(name)
    taken = {identifier(n) for n in functions if n != name}
    while python_name in taken and python_name != name:
        python_name += "_"
    options = "" if python_name == name else f"name={quoted(name)}"
    if isinstance(function, PrimFunc):
        return LoopPrinter(level).function(function, python_name, options)
    return GraphPrinter(functions, types, level).function(function, python_name, options)


def _part(node: Any, types: bool) -> str:
    if isinstance(node, StructInfo):
        return info_text(node, ScalarPrinter(Names()))
    if isinstance(node, PrimExpr):
        return ScalarPrinter(Names()).expr(node)
    if isinstance(node, Buffer):
        return f"{identifier(node.name)}: {LoopPrinter().annotation(node)}"
    if isinstance(node, Stmt):
        loops = LoopPrinter()
        loops.lines.level = 0
        loops.block(node)
        return loops.lines.text()
    graph, lines = GraphPrinter((), types), Lines()
    if isinstance(node, SeqExpr):
        graph.blocks(node, Uses(node, lambda _: True, graph.behind), lines)
        graph.add(lines, lambda: graph.expr(node.body))
    elif isinstance(node, BindingBlock):
        graph.block(node, lines)
    elif isinstance(node, Binding):
        graph.block(BindingBlock((node,)), lines)
    elif isinstance(node, If) or (isinstance(node, Expr) and _repeats(node)):
        return _part(_bound(node), types)
    else:
        graph.add(lines, lambda: graph.expr(node))
    return lines.text()


def _repeats(expr: Expr) -> bool:
    """Whether calls inside are used more than once: written out each time, the text may be exponentially long."""
    seen: set[Any] = set()
    stack: list[Any] = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, Call) and node in seen:
            return True
        if node not in seen and isinstance(node, (Call, Tuple, TupleGetItem)):
            seen.add(node)
            stack += node.args if isinstance(node, Call) else [getattr(node, "tuple_value", None)]
            stack += node.fields if isinstance(node, Tuple) else ()
    return False


def _bound(expr: Expr) -> SeqExpr:
    """The expression with a name for each call inside."""
    builder = BlockBuilder()
    builder.begin([v.name for v in free_vars(Function((), SeqExpr((), expr)))])
    return builder.finish(expr)
