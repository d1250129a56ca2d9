"""A plugin of mypy: decorated classes are modules for it, and scripts are none of its business.

    [tool.mypy]
    plugins = ["pullback.mypy_plugin"]

mypy takes a decorated class for a class, and annotations such as ``R.Tensor((64, 10), "float32")`` for types. With the
plugin, a class below ``@I.ir_module`` is an IRModule, and what mypy says inside of scripts, which are read by another
parser, is dropped. (Functions below ``@R.function`` and ``@T.prim_func`` have their types by the decorators' own.)
"""

from __future__ import annotations

from collections.abc import Callable

from mypy.errors import Errors
from mypy.nodes import ClassDef, Decorator, SymbolTable, TypeInfo
from mypy.plugin import ClassDefContext, FunctionContext, MethodContext, Plugin
from mypy.types import AnyType, CallableType, Instance, Type, TypeOfAny

MODULE = "pullback.script.ir.ir_module"
METACLASS = "pullback.script.ir.ModuleClass"
FUNCTIONS = ("pullback.script.relax.function", "pullback.script.tir.prim_func")
WITH_OPTIONS = ("pullback.script.relax.FunctionDecorator.__call__", "pullback.script.tir.PrimFuncDecorator.__call__")


class ScriptPlugin(Plugin):
    """The hooks of the three decorators."""

    def get_class_decorator_hook(self, fullname: str) -> Callable[[ClassDefContext], None] | None:
        return _module if fullname == MODULE else None

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        return _function if fullname in FUNCTIONS else None

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        return _function if fullname in WITH_OPTIONS else None


def plugin(version: str) -> type[Plugin]:
    """What mypy asks for."""
    return ScriptPlugin


def _module(context: ClassDefContext) -> None:
    """The class is an instance of a class of modules, and has no body."""
    metaclass = context.api.lookup_fully_qualified_or_none(METACLASS)
    if metaclass is None or not isinstance(metaclass.node, TypeInfo):
        context.api.defer()
        return
    written: ClassDef = context.cls
    written.info.declared_metaclass = written.info.metaclass_type = Instance(metaclass.node, [])
    written.info.names = SymbolTable()
    written.defs.body = []
    _drop_errors(getattr(context.api, "errors"), written.line, written.end_line)  # noqa: B009  no part of the interface


def _function(context: FunctionContext | MethodContext) -> Type:
    """The decorator's own type; the function below it is a script, of which nothing is left to check."""
    decorated = context.context
    if isinstance(decorated, Decorator):
        function = decorated.func
        anything = AnyType(TypeOfAny.special_form)
        fallback = context.api.named_generic_type("builtins.function", [])
        arguments = [anything] * len(function.arguments)
        function.type = CallableType(arguments, function.arg_kinds, function.arg_names, anything, fallback)
        function.body.body = []
        _drop_errors(getattr(context.api, "errors"), decorated.line, function.end_line)  # noqa: B009
    return context.default_return_type


def _drop_errors(errors: Errors, first: int, last: int | None) -> None:
    """Forget what was said about these lines of the present file."""
    said = errors.error_info_map.get(errors.file)
    if said is not None and last is not None:
        said[:] = [error for error in said if not first <= error.line <= last]
