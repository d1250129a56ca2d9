"""What relay's passes are made of: passes over functions, in whose results types are inferred, and rewriting of calls.

@function_pass(opt_level=1)
class Doubled:
    def transform_function(self, function, module, context):
        return Function(function.params, function.body + function.body)
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pullback.ir.arguments import whole
from pullback.ir.errors import ArgumentError, CallError, UserError
from pullback.ir.module import IRModule
from pullback.ir.pass_context import PassContext
from pullback.ir.passes import Pass, pass_of_class, required_names
from pullback.relay.expr import Call, Expr, Function
from pullback.relay.infer import infer_module
from pullback.relay.transform.infer_type import InferType
from pullback.relay.visitor import ExprMutator


def optimizable(function: Any) -> bool:
    """Whether passes look at a function of a module: one of relay, not left to an outside compiler, not marked."""
    if not isinstance(function, Function):
        return False
    return not function.attrs.get("Compiler") and not function.attrs.get("SkipOptimization")


@dataclass(frozen=True)
class FunctionPass(Pass):
    """A pass over one function of relay at a time: override :meth:`function`.

    With ``typed`` the types of the module are inferred before it, and :meth:`function` finds a ``checked_type`` in
    every expression. They are inferred in the result in any case.
    """

    typed: ClassVar[bool] = False

    def function(self, function: Function, module: IRModule) -> Function:
        raise NotImplementedError(f"{self.name} does not override function")

    def run(self, module: IRModule) -> IRModule:
        if self.typed and not _has_types(module):
            module = infer_module(module)
        result = module.copy()
        for name, function in module.items():
            if optimizable(function):
                result[name] = self.function(function, module)
        return InferType()(result)


def _has_types(module: IRModule) -> bool:
    """Whether inference has run on all functions: whatever changes one makes a new one, which has no type."""
    return all(f.checked_type_ is not None for f in module.functions.values() if isinstance(f, Function))


@dataclass(frozen=True)
class WrittenFunctionPass(FunctionPass):
    """A pass of a plain function of functions: :func:`function_pass` makes it."""

    transform: Callable[..., Function] = field(repr=False)
    opt_level: int = 0
    name: str = ""
    required: tuple[str, ...] = ()

    def function(self, function: Function, module: IRModule) -> Function:
        result = self.transform(function, module, PassContext.current())
        if not isinstance(result, Function):
            hint = "return the function that it makes"
            raise UserError(f"pass {self.name} must return a relay.Function, got {type(result).__name__}", hint=hint)
        return result

    def __str__(self) -> str:
        return f"Run Function pass: {self.name} at the optimization level {self.opt_level}"


def function_pass(
    pass_func: Any = None,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
) -> Any:
    """A pass of a function ``f(function, module, context) -> function``; or of a class, whose objects are passes then,
    by their method ``transform_function(function, module, context)``.

    Raises ArgumentError without ``opt_level``, CallError where ``required`` is no list of names.
    """
    names = required_names(required)
    if opt_level is None:
        raise ArgumentError("Please provide opt_level for the function pass", hint="@function_pass(opt_level=0)")
    level = whole("opt_level", opt_level)

    def make(given: Any) -> Any:
        shown: str = name if name else getattr(given, "__name__", type(given).__name__)
        if inspect.isclass(given):
            return pass_of_class(given, WrittenFunctionPass, "transform_function", (level, shown, names))
        if not callable(given):
            hint = "give it a function of a function, the module and the context"
            raise CallError("pass_func must be a callable for Function pass", hint=hint)
        return WrittenFunctionPass(given, level, shown, names)

    return make if pass_func is None else make(pass_func)


@dataclass(frozen=True)
class ApplyPassToFunction(Pass):
    """Runs a pass on those functions of the module whose names match the regular expression from beginning to end.

    ``error_if_no_function_matches_regex``: where none does, it is a UserError.
    """

    transform: Pass
    func_name_regex: str
    error_if_no_function_matches_regex: bool = False

    def run(self, module: IRModule) -> IRModule:
        chosen = [name for name in module.functions if re.fullmatch(self.func_name_regex, name)]
        if not chosen and self.error_if_no_function_matches_regex:
            known = ", ".join(module.functions)
            hint = f"the module has: {known}"
            raise UserError(f"no function's name matches {self.func_name_regex!r}", hint=hint)
        marked = module.copy()
        for name, function in module.items():
            if name not in chosen and isinstance(function, Function):
                marked[name] = function.with_attr("SkipOptimization", 1)
        after = self.transform(marked)
        result = after.copy()
        for name, function in module.items():
            if name not in chosen:
                result[name] = function
        return result


class CallRewriter(ExprMutator):
    """Rewrites calls from the arguments up: :meth:`rewrite` gets a call of an operator as it was, which has types, and
    the same call of the rewritten arguments, and returns what takes its place, or None for that call."""

    def rewrite(self, old: Call, new: Call) -> Expr | None:
        raise NotImplementedError

    def visit_call(self, call: Call) -> Expr:
        new = super().visit_call(call)
        assert isinstance(new, Call)
        found = self.rewrite(call, new)
        return new if found is None else found
