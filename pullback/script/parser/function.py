"""What graph and loop functions have in common: parameters, attributes, and statements that no script may hold."""

from __future__ import annotations

import ast
from typing import Any, TypeGuard

from pullback.ir.errors import ScriptError
from pullback.ir.module import GLOBAL_SYMBOL
from pullback.ir.node import Span
from pullback.script import tir as script_tir
from pullback.script.environment import Environment
from pullback.script.parser.evaluator import Evaluator
from pullback.script.parser.scope import Scope, assigned_names
from pullback.script.source import Source
from pullback.tir.expr import Var as ScalarVar

STATEMENTS = {
    ast.If: "an if statement", ast.For: "a for loop", ast.While: "a while loop", ast.FunctionDef: "an inner function",
    ast.AsyncFunctionDef: "an async function", ast.ClassDef: "an inner class", ast.AugAssign: "an augmented assignment",
    ast.Delete: "del", ast.Raise: "raise", ast.Try: "try", ast.Import: "an import", ast.ImportFrom: "an import",
    ast.Global: "global", ast.Nonlocal: "nonlocal", ast.Assert: "assert", ast.Pass: "pass", ast.Break: "break",
    ast.Continue: "continue", ast.With: "this with statement", ast.Return: "return", ast.Match: "a match statement",
    ast.AnnAssign: "an annotation without a value", ast.AsyncFor: "an async for", ast.AsyncWith: "an async with",
}  # fmt: skip


_PYTHON = "do it in Python, outside of the function: this is a text that is read, not run"
HINTS = {
    ast.Delete: "a name stands for one value: just do not use it any more",
    ast.Raise: _PYTHON, ast.Try: _PYTHON, ast.Assert: _PYTHON, ast.ClassDef: _PYTHON, ast.Match: _PYTHON,
    ast.Import: "import it outside of the function", ast.ImportFrom: "import it outside of the function",
    ast.Global: "leave it out: names of Python are read from outside, and never assigned",
    ast.Nonlocal: "leave it out: names of Python are read from outside, and never assigned",
    ast.Break: "a loop runs over its whole extent: choose by a condition",
    ast.Continue: "a loop runs over its whole extent: choose by a condition",
    ast.AsyncFunctionDef: "write a plain function", ast.AsyncFor: "write a plain for", ast.AsyncWith: _PYTHON,
    ast.Return: "return stands at the end of the function", ast.Pass: "leave it out", ast.FunctionDef: _PYTHON,
    ast.For: "loops go over range(n), without an else", ast.If: _PYTHON, ast.While: _PYTHON,
    ast.With: _PYTHON, ast.AugAssign: "a name stands for one value: assign the result to a new name",
    ast.AnnAssign: "give it a value: name: type = value",
}  # fmt: skip


class FunctionParser:
    """Reads one function: subclasses read the statements."""

    kind = "this function"
    hints: dict[type[ast.stmt], str] = {}  # noqa: RUF012  how to mend a statement that is not supported

    def __init__(
        self, source: Source, node: ast.FunctionDef, environment: Environment, options: dict[str, Any]
    ) -> None:
        self.source, self.node = source, node
        self.scope = self.make_scope(environment)
        self.evaluator = self.make_evaluator()
        symbol = {GLOBAL_SYMBOL: options.get("name") or node.name}
        self.attrs: dict[str, Any] = {"private": True} if options.get("private") else symbol

    def make_scope(self, environment: Environment) -> Scope:
        return Scope(environment)

    def make_evaluator(self) -> Evaluator:
        return Evaluator(self.source, self.scope)

    @property
    def span(self) -> Span | None:
        """The place of the function's name."""
        return self.source.span_of_name(self.node)

    def arguments(self, node: ast.FunctionDef) -> list[ast.arg]:
        """The parameters, which must be plain."""
        args = node.args
        odd = args.vararg or args.kwarg or next(iter([*args.kwonlyargs, *args.posonlyargs]), None)
        if odd is not None:
            hint = "write each parameter with its type; several tensors can be one R.Tuple"
            raise self.source.error(odd, f"parameters of {self.kind} are plain: no *, **, / or keyword-only ones", hint)
        if args.defaults:
            hint = "pass the value in every call, or write it into the function: R.const(1.0)"
            raise self.source.error(args.defaults[0], f"parameters of {self.kind} have no default values", hint)
        seen: dict[str, ast.arg] = {}
        for arg in args.args:
            if arg.arg in seen:
                raise self.source.error(arg, f"there are two parameters named {arg.arg!r}")
            seen[arg.arg] = arg
        return args.args

    def enter_body(self) -> None:
        """From here on the names that the body assigns are its own, as in Python."""
        self.scope.assigned = set(assigned_names(self.node.body))

    def eval(self, node: ast.expr) -> Any:
        return self.evaluator.eval(node)

    def eval_annotation(self, node: ast.expr) -> Any:
        """An annotation's value; a quoted annotation is read like a plain one."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            inner = Source.inline(node.value, self.source.span(node))
            return Evaluator(inner, self.scope).eval(inner.expression)
        return self.eval(node)

    def unsupported(self, node: ast.stmt) -> ScriptError:
        """The error for a statement that this kind of function cannot hold."""
        what = STATEMENTS.get(type(node), type(node).__name__)
        hint = self.hints.get(type(node)) or HINTS.get(type(node))
        return self.source.error(node, f"{what} cannot be used in {self.kind}", hint)

    def add_attrs(self, node: ast.Call) -> None:
        """``func_attr({...})``."""
        attrs = self.eval(node.args[0]) if len(node.args) == 1 and not node.keywords else None
        if not isinstance(attrs, dict):
            raise self.source.error(node, "func_attr takes one dictionary", 'write R.func_attr({"name": value})')
        self.attrs.update(attrs)

    def new_scalar(self, name: str, value: ast.expr) -> ScalarVar | None:
        """The variable that ``n = T.int64()`` declares: the symbolic size of that name where there is one already."""
        if not isinstance(value, ast.Call) or value.args or value.keywords:
            return None
        function = self.eval(value.func)
        if not isinstance(function, script_tir.DType):
            return None
        with self.evaluator.blame(value):
            var = self.scope.sizes.declare(name, function.name)
            if var.dtype != function.name:
                raise ScriptError(f"{name!r} is a size of dtype {var.dtype}, not {function.name}")
            return var

    def is_call_of(self, node: ast.AST, function: Any) -> TypeGuard[ast.Call]:
        """Whether the node calls that function of R or T."""
        if not isinstance(node, ast.Call):
            return False
        root = node.func
        while isinstance(root, ast.Attribute):
            root = root.value
        return isinstance(root, ast.Name) and self.eval(node.func) is function


def is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
