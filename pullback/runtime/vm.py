"""The virtual machine: calls of the functions of an executable, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback.ir.errors import ArgumentError
from pullback.ir.words import guided
from pullback.runtime.device import Device, cpu
from pullback.runtime.report import Report
from pullback.runtime.tensor import Tensor


@guided
class VirtualMachine:
    """Runs the functions of ``executable`` (what ``pullback.compile`` returns) on ``device``.

    ``vm["name"](*args)`` takes tensors, anything that ``pullback.tensor`` takes, and nested tuples of them; it returns
    a tensor or nested tuples of tensors. :meth:`profile` is always available, and costs nothing where it is not used:
    ``profile`` is accepted as in other packages. Machines and their functions may be used from several threads.
    """

    def __init__(self, executable: Any, device: Device | None = None, profile: bool = False) -> None:
        if not hasattr(executable, "function"):
            message = f"a VirtualMachine runs what pullback.compile returns, not {type(executable).__name__}"
            raise ArgumentError(message, hint="write VirtualMachine(pullback.compile(module))")
        if device is not None and not isinstance(device, Device):
            raise ArgumentError(f"expected a Device, got {device!r}", hint="pullback.cpu() is one")
        self.executable, self.device, self.profiling = executable, device or cpu(), profile

    @property
    def module(self) -> VirtualMachine:
        return self

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self.executable.function(name)

    def profile(self, name: str, *args: Any) -> Report:
        """Run the function a few times, and report how long each kernel took and what it did: see :class:`Report`."""
        return self.executable.function(name).profile(*args)

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
