"""Ahead-of-time compilation: functions of relay as native code, and as C libraries that need no Python.

step = aot.compile(relay.transform.gradient(loss), mod)
loss, gradients = step(x, w=w)
step.export_c("build/step")          # step.h, libstep.so, libstep.a
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pullback.deploy.function import FunctionLibrary
from pullback.ir.errors import ArgumentError
from pullback.ir.module import GlobalVar, IRModule
from pullback.relay.backend.graph import GraphFunction
from pullback.relay.backend.interpreter import check_device
from pullback.relay.expr import Function
from pullback.runtime.device import Device
from pullback.target import Target

__all__ = ["AotFunction", "compile"]


class AotFunction(GraphFunction):
    """A compiled function: called with positional arguments and keywords, and written as a C library."""

    def __init__(self, function: Function, module: IRModule, target: Target, name: str) -> None:
        super().__init__(function, module, target, "aot", name)
        self.target = target

    def library(self, name: str | None = None, platform: str = "host") -> FunctionLibrary:
        """The function planned for a C library, in which it has this name; the results are its last arguments.

        ``platform``: this machine, or another that ``python -m pullback targets`` lists, such as "aarch64".

        Raises ArgumentError where a size is not known, or the name is none of C, TargetError for other platforms.
        """
        chosen = name or _c_name(self.name)
        return FunctionLibrary.of(self.lowered, chosen, self.target, self.names, platform=platform)

    def export_c(self, folder: str | os.PathLike[str], name: str | None = None, platform: str = "host") -> Path:
        """Write NAME.h, libNAME.so and libNAME.a into a folder, and return that. It takes a C compiler.

        The header documents ``int NAME(const float *x, …, float *output)``: programs of C and C++ call it without
        Python. For ``platform`` "android" there are C sources in place of the shared library, for its own compiler.
        """
        return self.library(name, platform).write(folder)

    def export_library(self, file_name: str | os.PathLike[str], name: str | None = None) -> Path:
        """Write the shared library alone; ``pullback.runtime.load_module`` loads it."""
        return self.library(name).write_shared(file_name)


def _c_name(name: str) -> str:
    kept = "".join(c if c.isalnum() else "_" for c in name).strip("_")
    return "compiled" if kept in ("", "the_function", "main") else kept


def compile(
    func: Function | GlobalVar | str,
    mod: IRModule | None = None,
    ctx: Device | None = None,
    tgt: Any = "llvm",
    name: str | None = None,
) -> AotFunction:
    """Compile a function, or one of the module by its name, for the target.

    Arguments are tensors, arrays, and tuples of them, by position or name; several results come as a list.

    Raises NotDataflow where the function is no dataflow: it names the first construct that is none.
    """
    module = IRModule() if mod is None else mod
    target = Target(tgt)
    check_device(ctx, target)
    if isinstance(func, (GlobalVar, str)):
        called = func if isinstance(func, str) else func.name
        func, name = module[called], name or called
    if not isinstance(func, Function):
        hint = "relay.Function([], expression) makes one of an expression"
        raise ArgumentError(f"a function is compiled, not {type(func).__name__}", hint=hint)
    return AotFunction(func, module, target, name or "the function")
