"""Modules: from the syntax tree of ``@I.ir_module`` to an IRModule."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from pullback.ir.arguments import mapping
from pullback.ir.errors import ScriptError
from pullback.ir.module import IRModule
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.script import tir as T
from pullback.script.environment import Environment
from pullback.script.parser.evaluator import Evaluator
from pullback.script.parser.graph import GraphFunctionParser, ModuleNames
from pullback.script.parser.loops import LoopFunctionParser
from pullback.script.parser.scope import Scope
from pullback.script.source import Source

Closures = Callable[[ast.FunctionDef, Environment], Environment]


class ModuleParser:
    """Reads a class: attributes, constants, then all signatures, then all bodies.

    ``closures`` adds to the environment what the Python function of that definition closes over.
    """

    def __init__(self, source: Source, node: ast.ClassDef, environment: Environment, closures: Closures) -> None:
        self.source, self.node, self.closures = source, node, closures
        self.names = ModuleNames(node.name)
        self.constants: dict[str, Any] = {node.name: self.names}
        self.environment = environment
        self.hints: dict[str, str] = {}
        self.evaluator = Evaluator(source, Scope(environment.child(self.constants)))

    def parse(self) -> IRModule:
        """The module."""
        attrs: dict[str, Any] = {}
        parsers: dict[str, GraphFunctionParser | LoopFunctionParser] = {}
        for statement in self.node.body:
            if isinstance(statement, ast.FunctionDef):
                name, parser = self.function(statement)
                if name in parsers:
                    raise self.source.error(statement, f"the module has two functions named {name!r}", "rename one")
                parsers[name] = parser
            else:
                attrs.update(self.other(statement))
        for name, parser in parsers.items():
            info = parser.signature() if isinstance(parser, GraphFunctionParser) else None
            self.names.declare(name, info, isinstance(parser, GraphFunctionParser) and info is None)
        functions = {}
        for name, parser in parsers.items():
            functions[name] = parser.parse()
            self.names.declare(name, getattr(functions[name], "struct_info", None))
        return IRModule(functions, attrs)

    def function(self, node: ast.FunctionDef) -> tuple[str, GraphFunctionParser | LoopFunctionParser]:
        environment = self.closures(node, self.environment).child(self.constants, self.hints)
        parser, options = function_parser(self.source, node, environment)
        name = options.get("name") or node.name
        self.hints[name] = f"a function of the module is written with its name: {self.node.name}.{name}"
        return name, parser

    def other(self, node: ast.stmt) -> dict[str, Any]:
        """A statement of the class that is no function: module attributes, or a constant for the functions."""
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.Call):
            if isinstance(node.value, ast.Constant):
                return {}
            if self.evaluator.eval(node.value.func) is I.module_attrs:
                self.evaluator.eval(node.value)
                given = self.evaluator.eval(node.value.args[0]) if node.value.args else {}
                with self.evaluator.blame(node, lambda: "I.module_attrs"):
                    return dict(mapping("the attributes of a module", given))
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            self.constants[node.targets[0].id] = self.evaluator.eval(node.value)
            return {}
        elif isinstance(node, ast.Pass):
            return {}
        hint = "a module holds I.module_attrs({...}), constants, and functions with @R.function or @T.prim_func"
        raise self.source.error(node, "this statement cannot be used in a module", hint)


def function_parser(
    source: Source, node: ast.FunctionDef, environment: Environment
) -> tuple[GraphFunctionParser | LoopFunctionParser, dict[str, Any]]:
    """The parser of a function, by its decorator, and the decorator's options."""
    kinds = {R.function: GraphFunctionParser, T.prim_func: LoopFunctionParser}
    evaluator = Evaluator(source, Scope(environment))
    for decorator in node.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        value = evaluator.eval(call.func if call else decorator)
        if value not in kinds:
            hint = "functions are decorated with @R.function or @T.prim_func"
            raise source.error(decorator, f"{ast.unparse(decorator)} is no decorator of script functions", hint)
        options = {k.arg: evaluator.eval(k.value) for k in call.keywords if k.arg} if call else {}
        known = ("private", "pure", "name", "names") if value is R.function else ("private", "name")
        unknown = next((k for k in options if k not in known), None)
        if unknown is not None and call is not None:
            name = ast.unparse(call.func)
            raise source.error(decorator, f"{name} has no option {unknown!r}", "its options are private= and name=")
        if call is not None and (call.args or any(k.arg is None for k in call.keywords)):
            hint = "its options are private= and name="
            raise source.error(decorator, f"{ast.unparse(call.func)} takes options by name", hint)
        wanted = options.get("name")
        if wanted is not None and (not isinstance(wanted, str) or not wanted.isprintable() or not wanted):
            hint = "it is how the function is called: a string such as 'main'"
            raise source.error(
                decorator, f"the name of a function must be printable and not empty, got {wanted!r}", hint
            )
        return kinds[value](source, node, environment, options), options
    raise ScriptError(
        f"function {node.name} has no decorator", span=source.span_of_name(node), hint="write @R.function above it"
    )
