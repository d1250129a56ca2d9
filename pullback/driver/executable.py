"""Executables: functions that can be called, compiled natively or interpreted, behind one face.

A function is compiled when it is first called (and again for other symbolic sizes): the object cache makes that a file
read from the second process on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import numpy as np

from pullback.driver.artifact import Layout
from pullback.driver.memory import MemoryReport
from pullback.driver.native import NativeFunction, compile_function
from pullback.driver.profile import PROFILE_RUNS, Work, of_all_ranks, planned_work
from pullback.driver.reading import stop_if_reading
from pullback.driver.signature import Signature, donated_inputs, nested
from pullback.ir.errors import ArgumentError, CallError, NameNotFound, TargetError
from pullback.ir.forks import finished_first, renewed
from pullback.ir.module import IRModule
from pullback.ir.words import guided
from pullback.relax.expr import Function
from pullback.relax.interpreter import evaluate
from pullback.relax.struct_info import PrimStructInfo, ShapeStructInfo, StructInfo, TupleStructInfo, symbolic_vars
from pullback.runtime.dtype import numpy_dtype
from pullback.runtime.epoch import Epoch
from pullback.runtime.library import get_num_threads
from pullback.runtime.ranks import current
from pullback.runtime.report import Report
from pullback.runtime.tensor import Tensor, allocate_zeros, tensor
from pullback.target import Target


@guided
class Executable:
    """The functions of a compiled module. ``target`` is None for the interpreter."""

    def __init__(self, module: IRModule, target: Target | None) -> None:
        self.module, self.target = module, target
        self._functions: dict[str, CompiledFunction] = {}
        self._lock = threading.Lock()
        renewed(self, "_lock")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        hint = "call one of them: executable.function(name)(…), or executable[name](…)"
        raise CallError("an executable holds functions, it is not called itself", hint=hint)

    def function(self, name: str) -> CompiledFunction:
        """The function of that name; a NameNotFound lists those there are."""
        known = self._functions.get(name)
        if known is not None:
            return known
        function = self.module.functions.get(name)
        if not isinstance(function, Function):
            names = [n for n, f in self.module.items() if isinstance(f, Function) and not f.attrs.get("private")]
            raise NameNotFound(
                f"the executable has no function {name!r}; it has: {', '.join(names) or 'none'}",
                hint="executable.function(name) takes one of these names",
            )
        with self._lock:
            return self._functions.setdefault(name, CompiledFunction(self, name, function))

    __getitem__ = function

    def parameters(self, name: str) -> list[str]:
        """The names of the function's parameters."""
        return [param for param, _ in self.function(name).signature.params]

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle and copies: the module. Machine code is compiled again, or read from the cache."""
        return Executable, (self.module, self.target)

    def memory(self, name: str, **sizes: int) -> MemoryReport:
        """The memory that a call of the function takes; ``sizes`` are its symbolic sizes, by name. It is compiled if it
        is not yet, and not run."""
        return self.function(name).memory(**sizes)


@guided
class CompiledFunction:
    """One function: ``f(*args)``. Specialised, and compiled, for every set of symbolic sizes that it meets."""

    def __init__(self, executable: Executable, name: str, function: Function) -> None:
        self.executable, self.name = executable, name
        self.signature = Signature(name, function)
        self.donated = donated_inputs(function)
        self._native: dict[tuple[tuple[str, int], ...], NativeFunction] = {}
        self._plans: dict[tuple[tuple[str, int], ...], tuple[Layout, tuple[Work, ...]]] = {}
        self._lock = threading.Lock()
        renewed(self, "_lock")

    def __reduce__(self) -> tuple[Any, ...]:
        return Executable.function, (self.executable, self.name)

    def __call__(self, *args: Any) -> Any:
        flat, sizes = self.signature.flatten(args)
        if self.donated:
            flat = [tensor(t, copy=True) if i in self.donated else t for i, t in enumerate(flat)]
        results = self._flat_call(flat, sizes)()
        if self.donated:
            results += [flat[i] for i in self.donated]
        return self.signature.unflatten(results)

    def bind(self, tensors: Sequence[Tensor]) -> Callable[[], list[Tensor]]:
        """A prepared call on flat tensors, to be repeated: ``call()`` gives the results that are not donated, as a list
        of fresh tensors; ``call.set(i, tensor)`` replaces an input of the same type; ``call.donated`` names the inputs
        that a call overwrites."""
        flat, sizes = self.signature.flatten(_nest(self.signature, tensors))
        return finished_first(self._flat_call(flat, sizes), "_lock")

    def sizes_of(self, tensors: Sequence[Tensor]) -> dict[str, int]:
        """The symbolic sizes of a call on flat tensors, by name."""
        return dict(self.signature.flatten(_nest(self.signature, tensors))[1])

    def profile(self, *args: Any, runs: int = PROFILE_RUNS, together: bool = False) -> Report:
        """Run a few times, after one that does not count, and tell the time, FLOPs and bytes of each kernel.
        ``together``: all ranks do so, and each gets the report of all of them."""
        target = self.executable.target
        if target is None:
            raise ArgumentError("the interpreter has no profile", hint='compile for "llvm"')
        flat, sizes = self.signature.flatten(args)
        flat = [tensor(t, copy=True) if i in self.donated else t for i, t in enumerate(flat)]
        call = self._flat_call(flat, sizes)
        _, work = self._planned(sizes)
        fork_join = target.abilities.figures.fork_join_ns
        counts = [None if w.flops is None or w.bytes is None else (w.flops, w.bytes) for w in work]
        try:
            call()
            report = call.profile(runs, together).with_layers([w.layer for w in work]).with_counts(counts)
            report = report.with_schedules([w.chosen(get_num_threads(), fork_join) for w in work])
        except ArgumentError as error:
            if together:
                current().fail(error.message)  # the others wait for this one
            raise
        return of_all_ranks(report) if together else report

    def work(self, **sizes: int) -> tuple[MemoryReport, tuple[Work, ...]]:
        """The memory that a call takes, and what its kernels compute, in order; it is planned for these symbolic sizes,
        not compiled."""
        if self.executable.target is None:
            raise ArgumentError("the interpreter has no kernels", hint='compile for "llvm"')
        self.check_sizes(sizes)
        layout, work = self._planned(sizes)
        return MemoryReport.of(layout, self.executable.module), work

    def _planned(self, sizes: Mapping[str, int]) -> tuple[Layout, tuple[Work, ...]]:
        key, target = _key(sizes), self.executable.target
        assert target is not None
        if key not in self._plans:
            self._plans[key] = planned_work(self.executable.module, self.name, dict(sizes), target)
        return self._plans[key]

    def memory(self, **sizes: int) -> MemoryReport:
        """The memory that a call takes, by category: see :class:`MemoryReport`."""
        if self.executable.target is None:
            raise ArgumentError("the interpreter has no memory plan", hint='compile for "llvm"')
        self.check_sizes(sizes)
        return MemoryReport.of(self.native(sizes).layout, self.executable.module)

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """An ArgumentError unless these are exactly the function's symbolic sizes."""
        wanted = sorted({v.name for v in symbolic_vars(self.executable.module[self.name].struct_info)})
        if sorted(sizes) != wanted:
            given = ", ".join(sorted(sizes)) or "none"
            raise ArgumentError(f"{self.name} has the symbolic sizes {', '.join(wanted) or '(none)'}; got {given}")

    def _flat_call(self, flat: list[Tensor], sizes: dict[str, int]) -> Any:
        stop_if_reading(self.name)
        if self.executable.target is None:
            return InterpretedCall(self, flat)
        if _key(sizes) in self._native:
            return self.native(sizes).call(flat)
        with _allocating(flat):
            native = self.native(sizes)
        return native.call(flat)

    def native(self, sizes: dict[str, int] | None = None) -> NativeFunction:
        """The machine code for these symbolic sizes, compiled when first asked for."""
        target = self.executable.target
        assert target is not None
        if not target.is_host:
            raise TargetError(
                f"{self.name} is compiled for {target}, which is not this machine: it cannot be called here",
                hint='compile for "llvm" to run it here',
            )
        key = _key(sizes or {})
        known = self._native.get(key)
        if known is None:
            with self._lock:
                known = self._native.get(key)
                if known is None:
                    known = compile_function(self.executable.module, self.name, dict(key), target)
                    self._native[key] = known
        return known


def _key(sizes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(sizes.items()))


@contextmanager
def _allocating(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Have memory for tensors of zeros meanwhile. An optimizer's states are large, and the system takes so long to find
    pages for them that it shows in the time to a first step whose code is in the cache."""

    def allocate() -> None:
        with suppress(MemoryError):  # who needs it next will be told
            allocate_zeros(tensors)

    thread = threading.Thread(target=allocate)
    try:
        thread.start()
    except RuntimeError:  # the system gives no more threads: who needs the memory will make it
        yield
        return
    try:
        yield
    finally:
        thread.join()


def _nest(signature: Signature, tensors: Sequence[Tensor] | Sequence[np.ndarray]) -> list[Any]:
    """Flat tensors in the nesting of the parameters."""
    rest = iter(tensors)
    try:
        values = [nested(info, rest) for _, info in signature.params]
    except StopIteration:
        raise ArgumentError(f"{signature.name}: too few tensors: {len(tensors)}") from None
    if next(rest, None) is not None:
        raise ArgumentError(f"{signature.name}: too many tensors: {len(tensors)}")
    return values


class InterpretedCall:
    """A call by the interpreter; donated inputs are overwritten after everything has been computed."""

    def __init__(self, function: CompiledFunction, flat: list[Tensor]) -> None:
        self.function, self.flat = function, list(flat)
        self.donated = function.donated
        self._lock = threading.RLock()  # held while donated inputs are overwritten

    def set(self, index: int, value: Tensor) -> None:
        self.flat[index] = value

    def __call__(self) -> list[Tensor]:
        arrays = _nest(self.function.signature, [t.numpy() for t in self.flat])
        result = evaluate(self.function.executable.module, self.function.name, arrays)
        leaves = _leaves(result, self.function.signature.result)
        fresh = len(leaves) - len(self.donated)  # results that overwrite nothing come first
        with self._lock:
            for value, i in zip(leaves[fresh:], self.donated, strict=True):
                self.flat[i].copyfrom(value)
        return [tensor(v, copy=True) for v in leaves[:fresh]]

    def repeat(self, epoch: Epoch, seconds: float) -> None:
        """Gather and call, until the epoch's batches are done or so many seconds have passed; at least once."""
        deadline = time.perf_counter() + seconds
        while epoch.left:
            epoch.gather()
            epoch.count(*(float(result.item()) for result in self()[:2]))
            if epoch.stops or time.perf_counter() >= deadline:
                break


def _leaves(value: Any, info: StructInfo) -> list[Any]:
    """A result's values, one after another; of a shape, an array of its sizes."""
    if isinstance(info, TupleStructInfo):
        return [leaf for v, field in zip(value, info.fields, strict=True) for leaf in _leaves(v, field)]
    if isinstance(info, ShapeStructInfo):
        return [np.array(value, np.int64)]
    return [np.array(value, numpy_dtype(info.dtype)) if isinstance(info, PrimStructInfo) else value]
