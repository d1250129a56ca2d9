"""The virtual machine of relay: programs compiled region by region, run by the evaluator.

exe = vm.compile(mod, target="llvm")
machine = runtime.vm.VirtualMachine(exe, pullback.cpu())
machine.invoke("main", x)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.module import IRModule
from pullback.relay.backend.interpreter import InterpreterExecutor
from pullback.relay.evaluate.interpreter import CallableFunction
from pullback.relay.evaluate.regions import NativeInterpreter
from pullback.relay.expr import Function
from pullback.runtime.loaded import device_of
from pullback.runtime.vm import VirtualMachine
from pullback.target import Target

__all__ = ["Executable", "VMCompiler", "VMExecutor", "VirtualMachine", "compile"]


class Executable:
    """The functions of a module, ready to be compiled for what they meet."""

    def __init__(self, mod: IRModule, target: Target, params: Mapping[str, Any] | None = None) -> None:
        from pullback.relay.build_module import bind_params_by_name

        self.mod, self.target = mod.copy(), target
        if params:
            self.mod["main"] = bind_params_by_name(self.mod["main"], params)
        self.interpreter = NativeInterpreter(self.mod, target)

    def parameters(self, name: str) -> list[str]:
        """The names of a function's parameters."""
        return [p.name for p in self.mod[name].params]

    get_function_params = parameters

    @property
    def globals(self) -> list[str]:
        """The names of the functions."""
        return list(self.mod.functions)

    def function(self, name: str) -> CallableFunction:
        """A function of the module as a Python function."""
        return self.interpreter.function(self.mod.get_global_var(name))


def compile(mod: IRModule | Function, target: Any = None, target_host: Any = None, params: Any = None) -> Executable:
    """Compile a module for the virtual machine; ``params`` are values of parameters of ``main``.

    Functions are compiled when they are first called, for the shapes that they meet.
    """
    compiler = VMCompiler()
    if params:
        compiler.set_params(params)
    compiler.lower(mod, target, target_host)
    compiler.codegen()
    return compiler.get_exec()


class VMCompiler:
    """Compiles modules in steps: ``set_params``, ``lower``, ``codegen``, ``get_exec``."""

    def __init__(self) -> None:
        self._params: dict[str, Any] = {}
        self._executable: Executable | None = None

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Values of parameters of ``main``, which become constants."""
        self._params.update(params)

    def get_params(self) -> dict[str, Any]:
        return dict(self._params)

    def lower(self, mod: IRModule | Function, target: Any = None, target_host: Any = None) -> None:
        """Take the module."""
        module = IRModule.from_expr(mod) if isinstance(mod, Function) else mod
        if not isinstance(module, IRModule):
            raise ArgumentError(f"the virtual machine runs modules, not {type(mod).__name__}")
        check_host(target, target_host)
        self._executable = Executable(module, Target("llvm" if target is None else target), self._params)

    def codegen(self) -> None:
        """Nothing: code is made for the shapes that a call meets."""
        self.get_exec()

    def optimize(self, mod: IRModule, target: Any = None, params: Any = None) -> tuple[IRModule, Any]:
        """The module after relay's optimizations, and the parameters that are no constants in it."""
        from pullback.relay.build_module import optimize

        return optimize(mod, target, params or self._params)

    def get_exec(self) -> Executable:
        if self._executable is None:
            raise UserError("nothing is compiled yet", hint="call lower(mod, target) first")
        return self._executable


def check_host(target: Any, target_host: Any) -> None:
    """Raise an ArgumentError for a host that is another machine than the target."""
    if target_host is not None and Target(target_host) != Target("llvm" if target is None else target):
        raise ArgumentError(f"the host must be the target, got {target_host}", hint="leave target_host out")


class VMExecutor(InterpreterExecutor):
    """An executor of kind "vm"."""

    def __init__(self, mod: IRModule, device: Any, target: Any) -> None:
        super().__init__(mod, NativeInterpreter(mod, Target(target)))
        self.device, self.target = device_of(device), Target(target)
