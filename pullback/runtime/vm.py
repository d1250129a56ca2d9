"""The virtual machine: calls of the functions of an executable, by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from pullback.ir.errors import ArgumentError
from pullback.ir.words import guided
from pullback.runtime.device import Device, cpu
from pullback.runtime.graph_module import BenchmarkResult, measured
from pullback.runtime.report import Report
from pullback.runtime.tensor import Tensor


@guided
class VirtualMachine:
    """Runs the functions of ``executable`` (what ``pullback.compile`` returns) on ``device``.

    ``vm["name"](*args)`` takes tensors, anything that ``pullback.tensor`` takes, and nested tuples of them; it returns
    a tensor or nested tuples of tensors. :meth:`profile` is always available, and costs nothing where it is not used:
    ``profile`` is accepted as in other packages. Machines and their functions may be used from several threads.

    Args:
        executable: what ``pullback.compile`` returns.
        device: where it runs.
        profile: accepted as in other packages, without effect.

    Examples:
        >>> bb = relax.BlockBuilder()
        >>> a = relax.Var("a", R.Tensor((3,), "float32"))
        >>> with bb.function("double", [a]):
        ...     double = bb.emit_func_output(bb.emit(a + a))
        >>> vm = pullback.VirtualMachine(pullback.compile(bb.get()), pullback.cpu())
        >>> vm["double"](np.ones(3, "float32"))
        tensor([2., 2., 2.], shape=(3,), dtype=float32)
    """

    def __init__(self, executable: Any, device: Device | None = None, profile: bool = False) -> None:
        if not hasattr(executable, "function"):
            message = f"a VirtualMachine runs what pullback.compile returns, not {type(executable).__name__}"
            raise ArgumentError(message, hint="write VirtualMachine(pullback.compile(module))")
        if device is not None and not isinstance(device, Device):
            raise ArgumentError(f"expected a Device, got {device!r}", hint="pullback.cpu() is one")
        self.executable, self.device, self.profiling = executable, device or cpu(), profile
        self._functions: dict[str, Callable[..., Any]] = {}
        self._inputs: dict[str, list[Any]] = {}
        self._results: dict[str, Any] = {}

    @property
    def module(self) -> VirtualMachine:
        return self

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if name not in self._functions:
            self._functions[name] = self.executable.function(name)
        return self._functions[name]

    def invoke(self, func_name: str, *args: Any, **kwargs: Any) -> Any:
        """What the function gives for these arguments; without any, for those that :meth:`set_input` took.

        Keywords are names of parameters, for functions that know theirs.
        """
        if not args and not kwargs and func_name in self._inputs:
            args = tuple(self._inputs[func_name])
        self._results[func_name] = result = self[func_name](*args, **kwargs)
        return result

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """:meth:`invoke` of ``main``."""
        return self.invoke("main", *args, **kwargs)

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Keep arguments for the next calls of the function, by place or by the names of parameters."""
        names = self.executable.parameters(func_name)
        held = [*args, *[None] * (len(names) - len(args))]
        for name, value in kwargs.items():
            held[_place(func_name, names, name)] = value
        if len(args) > len(names):
            raise ArgumentError(f"{func_name} takes {len(names)} arguments, got {len(args)}")
        self._inputs[func_name] = held

    def set_one_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Keep one argument, by its number or name: ``set_one_input("main", "x", array)``, or ``x=array``."""
        if len(args) + 2 * len(kwargs) != 2:
            raise ArgumentError("set_one_input takes one number or name, and its value")
        ((key, value),) = kwargs.items() if kwargs else ((args[0], args[1]),)
        names = self.executable.parameters(func_name)
        held = self._inputs.setdefault(func_name, [None] * len(names))
        held[_place(func_name, names, key)] = value

    def get_outputs(self, func_name: str = "main") -> list[Any]:
        """The results of the function's last call, as a list."""
        if func_name not in self._results:
            raise ArgumentError(f"{func_name} has not run yet", hint="call run or invoke first")
        result = self._results[func_name]
        return list(result) if isinstance(result, (list, tuple)) else [result]

    def benchmark(
        self,
        device: Device | None = None,
        *args: Any,
        func_name: str = "main",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: int | None = None,
        **kwargs: Any,
    ) -> BenchmarkResult:
        """The seconds that a call takes: ``repeat`` means over ``number`` calls."""
        self.invoke(func_name, *args, **kwargs)
        return measured(lambda: self.invoke(func_name, *args, **kwargs), repeat, number, min_repeat_ms)

    def profile(self, name: str, *args: Any, **options: Any) -> Report:
        """Run the function a few times, and report how long each kernel took and what it did: see :class:`Report`.

        ``runs``: how often. ``together=True``: all ranks call it, and get the report of all of them. Without it each
        rank tells of itself; a function with collectives is to be profiled by all ranks all the same."""
        return self.executable.function(name).profile(*args, **options)

    def memory(self, name: str, **sizes: int) -> Any:
        """The memory that a call of the function takes, by category: see ``driver.memory.MemoryReport``."""
        return self.executable.memory(name, **sizes)

    def bind(self, name: str, tensors: Sequence[Tensor]) -> Any:
        """A prepared call of a function on flat tensors: see ``driver.executable.BoundCall``."""
        return self.executable.function(name).bind(tensors)

    def time_evaluator(self, name: str, device: Device | None = None, number: int = 10, repeat: int = 3) -> Any:
        """A function of the arguments that gives the seconds of a call, ``repeat`` means over ``number`` calls."""
        from time import perf_counter

        function = self.executable.function(name)

        def evaluate(*args: Any) -> list[float]:
            function(*args)  # the first call compiles
            results = []
            for _ in range(repeat):
                start = perf_counter()
                for _ in range(number):
                    function(*args)
                results.append((perf_counter() - start) / number)
            return results

        return evaluate


def _place(function: str, names: Sequence[str], key: Any) -> int:
    """The number of a parameter, by that or its name."""
    known = key in names if isinstance(key, str) else isinstance(key, int) and 0 <= key < len(names)
    if not known:
        raise ArgumentError(f"{function} has no parameter {key!r}", hint=f"its parameters are {', '.join(names)}")
    return names.index(key) if isinstance(key, str) else int(key)


def __getattr__(name: str) -> Any:
    """``Executable``: what ``relay.vm.compile`` returns; relay is loaded when it is asked for."""
    if name == "Executable":
        return importlib.import_module("pullback.relay.backend.vm").Executable
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
