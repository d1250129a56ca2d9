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
from pullback.relay.evaluate.interpreter import CallableFunction, arranged
from pullback.relay.evaluate.regions import NativeInterpreter
from pullback.relay.expr import Function
from pullback.runtime.device import Device
from pullback.runtime.graph_module import BenchmarkResult, measured
from pullback.runtime.loaded import device_of
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

    def get_function_params(self, func_name: str) -> list[str]:
        """The names of a function's parameters."""
        return [p.name for p in self.mod[func_name].params]

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


class VirtualMachine:
    """Runs an executable: ``invoke``, or ``set_input`` and ``run``."""

    def __init__(self, exe: Executable, device: Any = None, memory_cfg: Any = None) -> None:
        if not isinstance(exe, Executable):
            message = f"this machine runs what relay.vm.compile returns, not {type(exe).__name__}"
            raise ArgumentError(message, hint="exe = relay.vm.compile(mod, target)")
        self.executable, self.device = exe, device_of(device)
        self._inputs: dict[str, list[Any]] = {}
        self._functions: dict[str, CallableFunction] = {}
        self._result: Any = None

    @property
    def module(self) -> VirtualMachine:
        return self

    def _function(self, name: str) -> CallableFunction:
        if name not in self._functions:
            self._functions[name] = self.executable.function(name)
        return self._functions[name]

    def invoke(self, func_name: str, *args: Any, **kwargs: Any) -> Any:
        """What the function gives for these arguments, or for those that ``set_input`` took."""
        if not args and not kwargs and func_name in self._inputs:
            args = tuple(self._inputs[func_name])
        self._result = self._function(func_name)(*args, **kwargs)
        return self._result

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """:meth:`invoke` of ``main``."""
        return self.invoke("main", *args, **kwargs)

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Keep arguments for the next calls of the function."""
        names = self.executable.get_function_params(func_name)
        self._inputs[func_name] = arranged(f"@{func_name}", names, args, kwargs)

    def set_one_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Keep one argument, by its number or name: ``set_one_input("main", "x", array)``."""
        names = self.executable.get_function_params(func_name)
        ((key, value),) = kwargs.items() if kwargs else ((args[0], args[1]),)
        held = self._inputs.setdefault(func_name, [None] * len(names))
        held[names.index(key) if isinstance(key, str) else int(key)] = value

    def get_outputs(self) -> list[Any]:
        """The results of the last call, as a list."""
        return list(self._result) if isinstance(self._result, list) else [self._result]

    def benchmark(
        self,
        device: Device | None,
        *args: Any,
        func_name: str = "main",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: int | None = None,
        **kwargs: Any,
    ) -> BenchmarkResult:
        """The seconds that a call takes: see ``GraphModule.benchmark``."""
        self.invoke(func_name, *args, **kwargs)
        return measured(lambda: self.invoke(func_name, *args, **kwargs), repeat, number, min_repeat_ms)


class VMExecutor(InterpreterExecutor):
    """An executor of kind "vm"."""

    def __init__(self, mod: IRModule, device: Any, target: Any) -> None:
        super().__init__(mod, NativeInterpreter(mod, Target(target)))
        self.device, self.target = device_of(device), Target(target)
