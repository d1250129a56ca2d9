"""The ways in: decorators on functions and classes, and text."""

from __future__ import annotations

import ast
import contextlib
import functools
import itertools
from collections.abc import Callable, Mapping
from types import FrameType, FunctionType
from typing import Any

from pullback.ir.errors import ScriptError, UserError
from pullback.ir.module import IRModule
from pullback.script.environment import Environment
from pullback.script.parser.evaluator import Evaluator
from pullback.script.parser.graph import GraphFunctionParser
from pullback.script.parser.module import ModuleParser, function_parser
from pullback.script.parser.scope import Scope
from pullback.script.source import Definition, Source, find_definition


class Deferred:
    """A decorated function inside a class, until ``@I.ir_module`` reads the class."""

    def __init__(self, decorator: Callable[..., Any], function: FunctionType) -> None:
        self.decorator, self.function = decorator, function
        self.__name__ = function.__name__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._misplaced()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise self._misplaced()

    def _misplaced(self) -> ScriptError:
        return ScriptError(
            f"{self.function.__qualname__} belongs to a class that is no module",
            hint="put @I.ir_module above the class",
        )


def concise(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mistakes in a script are shown without the frames of the parser: the message has the place."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except UserError as error:
            raise error.with_traceback(None) from error.__cause__
        except RecursionError:
            raise ScriptError("this text is nested too deeply") from None

    return wrapper


@concise
def decorate(decorator: Callable[..., Any], function: Any, frame: FrameType, options: Mapping[str, Any]) -> Any:
    """What ``@R.function`` and ``@T.prim_func`` do: read the function now, or let its class be read later."""
    if not isinstance(function, FunctionType):
        raise ScriptError(
            f"only Python functions can be decorated, not {function!r}",
            hint="put @R.function or @T.prim_func above a def",
        )
    if "." in function.__qualname__.rpartition("<locals>.")[2]:
        return Deferred(decorator, function)
    code = function.__code__
    source, node = find_definition(code.co_filename, function.__name__, code.co_firstlineno, function.__globals__)
    environment = Environment.of_frame(frame).with_closure(function)
    if isinstance(node, ast.ClassDef):
        raise source.error(node, f"{node.name} is a class", "decorate it with @I.ir_module")
    parser, _ = function_parser(source, node, environment) if node.decorator_list else _plain(decorator, source, node)
    return _parse(parser)


def _plain(decorator: Callable[..., Any], source: Source, node: ast.FunctionDef) -> Any:
    name = f"{decorator.__name__}"
    raise source.error(node, f"{node.name} was passed to {name} without being decorated", f"write it above: @{name}")


def _parse(parser: Any) -> Any:
    if isinstance(parser, GraphFunctionParser):
        parser.signature()
    return parser.parse()


@concise
def module_from_class(cls: type, frame: FrameType) -> IRModule:
    """What ``@I.ir_module`` does."""
    if not isinstance(cls, type):
        raise ScriptError(f"@I.ir_module decorates a class, not {cls!r}")
    functions = {n: v.function for n, v in vars(cls).items() if isinstance(v, Deferred)}
    source, node = _class_definition(cls, frame, functions)

    def closures(definition: ast.FunctionDef, environment: Environment) -> Environment:
        function = functions.get(definition.name)
        return environment if function is None else environment.with_closure(function)

    return ModuleParser(source, node, Environment.of_frame(frame), closures).parse()


def _class_definition(
    cls: type, frame: FrameType, functions: Mapping[str, FunctionType]
) -> tuple[Source, ast.ClassDef]:
    """The class statement: at the line that runs now, or, when the decorator is called by hand, around a function."""
    file = frame.f_code.co_filename
    try:
        source, node = find_definition(file, cls.__name__, frame.f_lineno, frame.f_globals)
    except ScriptError as error:
        found = None
        for function in functions.values():
            code = function.__code__
            with contextlib.suppress(ScriptError):
                source, inner = find_definition(code.co_filename, function.__name__, code.co_firstlineno, {})
                found = next((d for d in source.definitions() if inner in d.body), None)
                break
        if found is None:
            raise error from None
        node = found
    if not isinstance(node, ast.ClassDef):
        raise source.error(node, f"{cls.__name__} is no class") from None
    return source, node


_texts = itertools.count(1)


@concise
def from_source(
    text: str, name: str | None = None, extra_vars: Mapping[str, Any] | None = None, *, file: str | None = None
) -> Any:
    """The IRModule, Function or PrimFunc that a text defines.

    ``I``, ``R`` and ``T`` are known without imports; ``extra_vars`` are further Python names that the text may use.
    When the text defines several things, ``name`` says which one is wanted. ``file`` is the name that messages show.

    **The text is evaluated as Python, and this is no sandbox**: a call of any function that it can name or import from
    this package's modules runs while it is read. Read a text only if you would run a program of whoever wrote it;
    parameters of strangers are read with ``trainer.load`` (see docs/security.md).
    """
    if not isinstance(text, str):
        raise ScriptError(
            f"from_source takes the text of a script, not {type(text).__name__}",
            hint="read a file with pathlib.Path(name).read_text()",
        )
    if extra_vars is not None and not isinstance(extra_vars, Mapping):
        message = f"extra_vars must be a dict of Python values by name, not {type(extra_vars).__name__}"
        raise ScriptError(message, hint='from_source(text, {"N": 64})')
    for what, value in (("name", name), ("file", file)):
        if value is not None and not isinstance(value, str):
            raise ScriptError(f"{what} must be a string, not {type(value).__name__}", hint=f'{what}="…"')
    source = Source(file or f"<script {next(_texts)}>", text)
    constants: dict[str, Any] = {}
    environment = Environment.of_text(extra_vars).child(constants)
    evaluator = Evaluator(source, Scope(environment))
    definitions: dict[str, Definition] = {}
    for statement in source.tree.body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef):
            definitions[statement.name] = statement
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            constants[statement.targets[0].id] = evaluator.eval(statement.value)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            constants.update(_imported(source, statement))
        elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            hint = "a text holds imports of pullback, constants, and modules or functions; pass the rest as extra_vars"
            raise source.error(statement, "this statement cannot be used in a script", hint)
    node = _wanted(source, definitions, name)
    if isinstance(node, ast.ClassDef):
        return ModuleParser(source, node, environment, lambda _, env: env).parse()
    return _parse(function_parser(source, node, environment)[0])


def _imported(source: Source, node: ast.Import | ast.ImportFrom) -> dict[str, Any]:
    """The names that an import gives; only pullback can be imported."""
    modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    if any(module.partition(".")[0] not in ("pullback", "__future__") for module in modules):
        raise source.error(node, "a text imports only from pullback", "pass other Python values as extra_vars")
    names: dict[str, Any] = {}
    try:
        exec(compile(ast.Module([node], []), source.file, "exec"), {"__name__": "<script>"}, names)
    except (ImportError, SyntaxError) as error:
        hint = "a text begins with: from pullback.script import ir as I, relax as R, tir as T"
        raise source.error(node, str(error).partition(" (/")[0], hint) from None
    return names


def _wanted(source: Source, definitions: Mapping[str, Definition], name: str | None) -> Definition:
    if name is None and len(definitions) == 1:
        return next(iter(definitions.values()))
    if name is not None and name in definitions:
        return definitions[name]
    known = ", ".join(definitions) or "nothing"
    if name is not None:
        raise ScriptError(f"the text does not define {name!r}; it defines {known}")
    hint = "say which one with name=…" if definitions else "write a class with @I.ir_module, or @R.function"
    raise ScriptError(f"the text must define one module or function; it defines {known}", hint=hint)
