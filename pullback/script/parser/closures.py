"""Functions inside of graph functions.

``def f(x: R.Tensor(…)):`` is a value that reads the variables around it. With ``@R.region`` it is no value but a part
of the call of ``R.branch`` or ``R.loop`` that names it, and reads its parameters alone.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from pullback.relax.expr import Var, VarBinding
from pullback.relax.struct_info import FuncStructInfo
from pullback.script import relax as R
from pullback.script.parser.graph_scope import Refused
from pullback.script.parser.scope import Entry, assigned_names

if TYPE_CHECKING:
    from pullback.script.parser.graph import GraphFunctionParser


def inner_function(parser: GraphFunctionParser, node: ast.FunctionDef) -> None:
    """Read a function: the variable, or the region, of its name is visible from here on."""
    is_region = _is_region(parser, node)
    params = [parser.parameter(a) for a in parser.arguments(node)]
    declared = parser.struct_info(node.returns) if node.returns is not None else None
    span = parser.source.span_of_name(node)
    var: Var | None = None
    if is_region or declared is None:
        refused = Refused(
            f"{node.name!r} calls itself, and does not say what it returns",
            f"declare it: def {node.name}(…) -> R.Tensor(…)",
        )
        if is_region:
            refused = Refused(
                f"the region {node.name!r} calls itself", "regions are called by R.branch and R.loop alone"
            )
        parser.scope.define(node.name, refused, span)
    else:
        var = parser.named(node.name, FuncStructInfo(tuple(p.struct_info for p in params), declared), span)
    attrs, parser.attrs = parser.attrs, {}
    with parser.inside(None, is_function=True, assigned=assigned_names(node.body)) as level:
        if is_region:
            parser.bound = set()
        parser.bound.update(params)
        for arg, param in zip(node.args.args, params, strict=True):
            parser.scope.define(arg.arg, param, param.span)
        body = parser.function_body(node, declared)
    function = parser.made(params, body, declared, span)
    parser.attrs = attrs
    if is_region:
        parser.scope.define(node.name, function, span)
        return
    if var is None:
        var = parser.named(node.name, function.struct_info, span)
    parser.builder.emit_binding(VarBinding(var, function, span=span))
    reads = {name: entry for name, entry in level.around.items() if name != node.name}
    parser.scope.levels[-1][node.name] = Entry(var, span, reads)


def _is_region(parser: GraphFunctionParser, node: ast.FunctionDef) -> bool:
    for decorator in node.decorator_list:
        if parser.eval(decorator) is not R.region:
            hint = "a function inside of a graph function has no decorator, or @R.region"
            raise parser.source.error(decorator, f"{ast.unparse(decorator)} cannot be used here", hint)
    return bool(node.decorator_list)
