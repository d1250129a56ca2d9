"""The values of the evaluator under the reference's names, and what executors have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pullback.ir.errors import ArgumentError, TargetError
from pullback.ir.module import GlobalVar, IRModule
from pullback.relay.evaluate import Closure, ConstructorValue, Interpreter, RefValue
from pullback.relay.evaluate.graph import free_variables
from pullback.relay.expr import Function, Var
from pullback.runtime.container import ADT

__all__ = ["ADT", "Closure", "ConstructorValue", "Executor", "Interpreter", "InterpreterExecutor", "RefValue"]


class Executor:
    """Runs functions and expressions of a module; :func:`create_executor` makes one."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod

    def evaluate(self, expr: Any = None, binds: Mapping[Var, Any] | None = None) -> Any:
        """The function ``main`` of the module, or the function ``expr``, as a Python function; the value of ``expr``
        where that is no function. ``binds`` are values of its free variables.

        >>> relay.create_executor().evaluate(relay.const(1.0) + relay.const(2.0))
        tensor(3., shape=(), dtype=float32)
        """
        if expr is None:
            return self._function(self.mod.get_global_var("main"))
        if isinstance(expr, str):
            hint = "mod.get_global_var(name) is a function of the module"
            raise ArgumentError(f"an expression is evaluated, not the string {expr!r}", hint=hint)
        if binds:
            return self._value(expr, binds)
        if isinstance(expr, GlobalVar) or (isinstance(expr, Function) and not free_variables(expr)):
            return self._function(expr)
        return self._value(expr, {})

    def _function(self, function: Any) -> Callable[..., Any]:
        raise NotImplementedError

    def _value(self, expr: Any, binds: Mapping[Var, Any]) -> Any:
        raise NotImplementedError


class InterpreterExecutor(Executor):
    """An executor of the whole language; ``interpreter`` says how it computes."""

    def __init__(self, mod: IRModule, interpreter: Interpreter) -> None:
        super().__init__(mod)
        self.interpreter = interpreter

    def _function(self, function: Any) -> Callable[..., Any]:
        return self.interpreter.function(function)

    def _value(self, expr: Any, binds: Mapping[Var, Any]) -> Any:
        return self.interpreter.value(expr, binds)


def check_device(device: Any, target: Any) -> None:
    """Raise a TargetError unless the device runs code of the target."""
    if device is not None and getattr(device, "kind", None) != "cpu":
        raise TargetError(f"code for {target} runs on cpu(0), not on {device!r:.80}", hint="pullback.cpu() is it")
