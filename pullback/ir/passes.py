"""Passes: functions from module to module, written as small frozen dataclasses whose fields are their options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

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
    """A pass that works on one graph function at a time: override :meth:`function`.

    Where the function has branches and loops, they are closed first (``relax.transform.InlineFunctions``), and
    :meth:`function` sees straight code: each region, then the function, in which ``branch`` and ``loop`` are calls of
    ops that it knows nothing of. A pass that looks at them itself says ``straight = False``.
    """

    straight: ClassVar[bool] = True

    def function(self, function: Any, module: IRModule) -> Any:
        raise NotImplementedError(f"{self.name} does not override function")

    def run(self, module: IRModule) -> IRModule:
        result = module.copy()
        for name, function in module.items():
            if hasattr(function, "ret_struct_info"):  # a graph function
                result[name] = self.whole(function, module)
        return result

    def whole(self, function: Any, module: IRModule) -> Any:
        """:meth:`function` of a function and, if it is for straight code, of the regions in it."""
        if not self.straight or _over_regions is None:
            return self.function(function, module)
        return _over_regions(function, module, lambda f: self.function(f, module))


_over_regions: Any = None


def set_over_regions(over_regions: Any) -> None:
    """Install ``over_regions(function, module, change)`` (``relax/transform`` does so on import)."""
    global _over_regions
    _over_regions = over_regions


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
