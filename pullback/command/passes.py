"""The passes that `python -m pullback opt` runs, and the text that names them.

    find("Simplify", GRAPH)                                             one of the table
    parsed('Gradient("main"), FuseOps', GRAPH, Target("llvm"))          passes, with their options

The table is made of what `relax.transform`, `relay.transform` and `tir/transform.py` offer, and of the passes of the
pipeline and of trainers: a pass that is added there is found. Options are Python literals, or calls of losses,
optimizers, ``Mesh`` and ``R.Tensor``, where a pass takes such.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback import optim, relay
from pullback.driver.pipeline import JOINED, RAISED, machine_of, stages
from pullback.ir.errors import ArgumentError, NameNotFound, ScriptError, UserError, suggestion
from pullback.ir.node import Span
from pullback.ir.passes import ModulePass, Pass, PrintIR, Sequential
from pullback.relax import transform as graph
from pullback.relax.training import distribution, join_run, loss, setup_trainer, utils
from pullback.relax.transform import pack_constants
from pullback.schedule.group import Machine
from pullback.script import relax as script
from pullback.target import Target
from pullback.tir import transform as kernels

GRAPH, RELAY = "the graph IR", "relay"  # languages; kernels of the loop IR are in modules of the graph IR
_EXAMPLE = 'write A, B(option=2), C("name")'
_TRAINING = (
    utils.AppendLoss, setup_trainer.SetupTrainer, join_run.JoinRun, distribution.DataParallel, distribution.ZeRO,
    pack_constants.PackConstants,
)  # fmt: skip
_NO_PASSES = (  # bases, and what is made of Python's functions
    Pass, graph.FunctionPass, relay.transform.FunctionPass, ModulePass, PrintIR, Sequential,
    relay.transform.ApplyPassToFunction,
)  # fmt: skip
_GIVEN = ("machine", "groups")  # the arguments of passes that are the compiler's


@dataclass(frozen=True)
class Entry:
    """A pass: ``make`` is its class, or the function that makes it."""

    name: str
    language: str
    make: Callable[..., Pass]

    @property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.make)

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """What can be given."""
        return {name: parameter for name, parameter in self.signature.parameters.items() if name not in _GIVEN}

    @functools.cached_property
    def kinds(self) -> dict[str, Any]:
        """The types of its options."""
        return typing.get_type_hints(self.make if inspect.isfunction(self.make) else self.make.__init__)

    @property
    def usage(self) -> str:
        """``Gradient(func_name, require_grads=None, target_index=0)``."""
        texts = [str(p.replace(annotation=p.empty, kind=p.POSITIONAL_OR_KEYWORD)) for p in self.options.values()]
        return f"{self.name}({', '.join(texts)})" if texts else self.name

    @property
    def texts(self) -> list[str]:
        """What is written about it: in the first lines of its file, where these are its own, and in its docstring."""
        file, own = inspect.getdoc(inspect.getmodule(self.make)) or "", inspect.getdoc(self.make) or ""
        return [file, own] if file.startswith(f"{self.name}: ") else [own]

    @property
    def about(self) -> str:
        """The first sentence of that, in one line."""
        paragraph = self.texts[0].removeprefix(f"{self.name}: ").partition("\n\n")[0].replace("\n", " ")
        sentence = re.split(r"[.:;](?:\s|$)", paragraph, maxsplit=1)[0]
        plain = re.sub(r":\w+:`([^`]*)`|``", r"\1", sentence)
        word = plain.partition(" ")[0]
        return plain[:1].lower() + plain[1:] if word[1:] == word[1:].lower() else plain


@functools.cache
def table() -> tuple[Entry, ...]:
    """All passes, those of the graph IR first, by name."""
    compiler = [type(step) for stage in (RAISED, JOINED, *stages(Machine())) for step in stage[1]]
    ours: dict[str, Callable[..., Pass]] = {kind.__name__: kind for kind in (*compiler, *_TRAINING)}
    found = [
        *(Entry(name, GRAPH, kind) for name, kind in {**_offered(graph), **_offered(kernels), **ours}.items()),
        *(Entry(name, RELAY, kind) for name, kind in _offered(relay.transform).items()),
    ]
    return tuple(sorted(found, key=lambda e: (e.language == RELAY, e.name.lower())))


def _offered(room: types.ModuleType) -> dict[str, Callable[..., Pass]]:
    """The passes, and the functions that make one, among the names that a module offers."""
    values = {name: getattr(room, name) for name in room.__all__}
    return {name: value for name, value in values.items() if _is_pass(value) or _makes_one(value)}


def _is_pass(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Pass) and value not in _NO_PASSES


def _makes_one(value: Any) -> bool:
    """Whether it is a function that is annotated to return a pass."""
    if not inspect.isfunction(value):
        return False
    result = typing.get_type_hints(value).get("return")
    return inspect.isclass(result) and issubclass(result, Pass)


def find(name: str, language: str) -> Entry:
    """The pass of that name over modules of a language.

    Raises NameNotFound, with the nearest name, where there is none.
    """
    known = {entry.name: entry for entry in table() if entry.language == language}
    if name in known:
        return known[name]
    others = [entry.name for entry in table() if entry.language != language]
    if name in others:
        hint = f"this is a module of {language}: pullback opt --list names the passes of both"
        raise NameNotFound(f"{name} is a pass over modules of {RELAY if language == GRAPH else GRAPH}", hint=hint)
    hint = "pullback opt --list names all passes"
    raise NameNotFound(f"there is no pass {name!r}{suggestion(name, [*known, *others])}", hint=hint)


def documentation(name: str) -> str:
    """What is written about the pass of that name, or those: each language may have one.

    Raises NameNotFound, with the nearest name, where there is none.
    """
    found = [entry for entry in table() if entry.name == name] or [find(name, GRAPH)]
    texts = ([e.usage, *e.texts, f"It is a pass over modules of {e.language}."] for e in found)
    return "\n\n\n".join(map("\n\n".join, texts))


def parsed(text: str, language: str, target: Target) -> list[Pass]:
    """The passes of a list such as ``Gradient("main"), Normalize``; schedules are for the target.

    Raises ScriptError, which points into the text, for what is no list of passes; NameNotFound for unknown passes;
    ArgumentError for options that a pass does not have, or that are of another type.
    """
    try:
        tree = ast.parse(f"[{text}\n]", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        column = max(0, (getattr(error, "offset", None) or 1) - 2)
        raise _no_list(text, min(column, max(0, len(text) - 1))) from None
    if not isinstance(tree, ast.List):
        raise _no_list(text, 0)
    return [_made(node, text, language, target) for node in tree.elts]


def _no_list(text: str, column: int) -> ScriptError:
    return ScriptError("this is no list of passes", span=Span("--passes", 1, column, None, text), hint=_EXAMPLE)


def _made(node: ast.expr, text: str, language: str, target: Target) -> Pass:
    called = node.func if isinstance(node, ast.Call) else node
    if not isinstance(called, ast.Name):
        raise _mistake("this is no pass", node, text, _EXAMPLE)
    entry = find(called.id, language)
    args, kwargs = _arguments(node, text) if isinstance(node, ast.Call) else ((), {})
    try:
        given = entry.signature.bind_partial(*args, **kwargs).arguments
    except TypeError:
        unknown = next((name for name in kwargs if name not in entry.signature.parameters), None)
        if unknown is None:
            raise ArgumentError(f"{entry.name} does not take these options", hint=_hint(entry)) from None
        meant = suggestion(unknown, entry.options)
        raise ArgumentError(f"{entry.name} has no option {unknown!r}{meant}", hint=_hint(entry)) from None
    for name, value in given.items():
        if name not in entry.options:
            raise ArgumentError(f"{name} of {entry.name} is the compiler's: --target says for which machine")
        if not _takes(entry.kinds[name], value):
            kind = inspect.formatannotation(entry.signature.parameters[name].annotation).strip("'")
            raise ArgumentError(f"{name} of {entry.name} cannot be {value!r:.80}", hint=f"its type is {kind}")
    missing = [n for n, p in entry.options.items() if p.default is p.empty and n not in given]
    if missing:
        raise ArgumentError(f"{entry.name} needs {' and '.join(missing)}", hint=_hint(entry))
    if "machine" in entry.signature.parameters:
        given["machine"] = machine_of(target)
    return entry.make(**given)


def _hint(entry: Entry) -> str:
    return f"it is {entry.usage}" if entry.options else "it has no options"


def _mistake(message: str, node: ast.expr, text: str, hint: str) -> ScriptError:
    end = node.end_col_offset if node.end_lineno == node.lineno == 1 else None
    line = text.split("\n")[min(node.lineno, text.count("\n") + 1) - 1]
    column = node.col_offset - (node.lineno == 1)
    span = Span("--passes", node.lineno, column, None if end is None else end - 1, line)
    return ScriptError(message, span=span, hint=hint)


def _arguments(call: ast.Call, text: str) -> tuple[list[Any], dict[str, Any]]:
    """The values of a call's arguments; nothing but literals and calls of ``_OBJECTS`` is evaluated."""
    for keyword in call.keywords:
        if keyword.arg is None:
            raise _mistake("** cannot stand here", keyword.value, text, "write option=value")
    args = [_value(argument, text) for argument in call.args]
    return args, {str(keyword.arg): _value(keyword.value, text) for keyword in call.keywords}


@functools.cache
def _objects() -> Mapping[str, Callable[..., Any]]:
    """What options may be made of, by name."""
    losses = {n: k for n, k in vars(loss).items() if inspect.isclass(k) and issubclass(k, loss.Loss)}
    optimizers = {name: getattr(optim, name) for name in optim.__all__ if callable(getattr(optim, name))}
    shown = {"R.Tensor": script.Tensor, "R.Tuple": script.Tuple, "Mesh": distribution.Mesh}
    return {**losses, **optimizers, **shown}


def _value(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        if name not in _objects():
            hint = "options are literals, losses, optimizers, Mesh and R.Tensor"
            raise _mistake(f"there is no {name}{suggestion(name, _objects())}", node, text, hint)
        args, kwargs = _arguments(node, text)
        try:
            return _objects()[name](*args, **kwargs)
        except UserError:
            raise
        except (TypeError, ValueError) as error:
            raise _mistake(str(error), node, text, f"it is {name}{inspect.signature(_objects()[name])}") from None
    if isinstance(node, ast.List):
        return [_value(item, text) for item in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple([_value(item, text) for item in node.elts])
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        hint = 'options are literals: 2, True, None, "name", [1, 2], {"n": 64}'
        raise _mistake("this is no literal", node, text, hint) from None


def _takes(kind: Any, value: Any) -> bool:
    """Whether a value is of an option's type."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or isinstance(kind, typing.TypeVar):
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_takes(k, value) for k in inner)
    if kind is None or kind is type(None):
        return value is None
    if origin is tuple and not (len(inner) == 2 and inner[1] is Ellipsis):
        return isinstance(value, tuple) and len(value) == len(inner) and all(map(_takes, inner, value))
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return isinstance(value, dict) and all(_takes(inner[0], k) and _takes(inner[1], v) for k, v in value.items())
    if inspect.isclass(origin) and issubclass(origin, Sequence):
        return isinstance(value, (list, tuple)) and all(_takes(inner[0], v) for v in value)
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    return inspect.isclass(kind) and isinstance(value, kind)
