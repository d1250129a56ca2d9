"""Passes: functions from module to module, written as small frozen dataclasses whose fields are their options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.depth import deep
from pullback.ir.errors import UserError
from pullback.ir.module import IRModule


@dataclass(frozen=True)
class Pass:
    """Base of passes: subclass it, give it fields, and override :meth:`run`. It never changes its argument."""

    @property
    def name(self) -> str:
        return type(self).__name__

    def run(self, module: IRModule) -> IRModule:
        raise NotImplementedError(f"{self.name} does not override run")

    def __call__(self, module: IRModule) -> IRModule:
        if not isinstance(module, IRModule):
            hint = "wrap a function with IRModule.from_expr(function)" if hasattr(module, "params") else None
            raise UserError(f"{self.name} works on an IRModule, not on {type(module).__name__}", hint=hint)
        return deep(self.run)(module)


@dataclass(frozen=True)
class FunctionPass(Pass):
    """A pass that works on one graph function at a time: override :meth:`function`."""

    def function(self, function: Any, module: IRModule) -> Any:
        raise NotImplementedError(f"{self.name} does not override function")

    def run(self, module: IRModule) -> IRModule:
        result = module.copy()
        for name, function in module.items():
            if hasattr(function, "ret_struct_info"):  # a graph function
                result[name] = self.function(function, module)
        return result


@dataclass(frozen=True)
class Sequential(Pass):
    """Passes one after another."""

    passes: Sequence[Callable[[IRModule], IRModule]]

    def run(self, module: IRModule) -> IRModule:
        for step in self.passes:
            module = step(module)
        return module


@dataclass(frozen=True)
class _Wrapped(Pass):
    function: Callable[[IRModule], IRModule]

    def run(self, module: IRModule) -> IRModule:
        return self.function(module)


def module_pass(function: Callable[[IRModule], IRModule]) -> Pass:
    """A pass from a plain function of modules."""
    return _Wrapped(function)
