"""Native functions: a plan compiled, cached, loaded, and called through pointers."""

from __future__ import annotations

import ctypes
import hashlib
import math
import threading
from collections import deque
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from pullback import codegen
from pullback.driver.cache import compiler_fingerprint, object_cache
from pullback.driver.debug import level, say
from pullback.driver.pipeline import plan_function
from pullback.ir.errors import ArgumentError
from pullback.ir.module import IRModule
from pullback.ir.node import structural_digest
from pullback.relax.transform.plan_memory import Plan
from pullback.runtime.library import runtime_table
from pullback.runtime.memory import OwnedMemory
from pullback.runtime.report import Report
from pullback.runtime.slab import SmallMemory
from pullback.runtime.tensor import Tensor, tensor
from pullback.target import Target
from pullback.tir.expr import nbytes

_SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4)  # runtime, buffers, arena, trace
_small = SmallMemory()


def compile_function(module: IRModule, name: str, sizes: dict[str, int], target: Target) -> NativeFunction:
    """Plan, compile (or take from the cache) and load one function of a prepared module."""
    start = perf_counter()
    plan = plan_function(module, name, sizes, target)
    functions = [*plan.kernels.values(), plan.host]
    planned = perf_counter()
    code, hit = object_code(functions, target)
    library = codegen.load_object(code)
    done = perf_counter()
    say(
        1,
        f"# compiled {name}: {len(plan.kernels)} kernels, {len(plan.steps)} calls, {plan.arena_bytes} bytes of arena; "
        f"passes {1e3 * (planned - start):.0f} ms, code {1e3 * (done - planned):.0f} ms{' (cached)' if hit else ''}",
    )
    return NativeFunction(name, plan, library)


def object_code(functions: Sequence[Any], target: Target) -> tuple[bytes, bool]:
    """The object code of loop-IR functions, and whether it came from the cache."""
    digest = hashlib.sha256(f"{compiler_fingerprint()} {target.key}".encode())
    for function in functions:
        digest.update(function.name.encode() + structural_digest(function))
    key, cache = digest.hexdigest(), object_cache()
    code = cache.get(key)
    if code is not None and level() < 4:
        return code, True
    text = codegen.emit_module(functions, target)
    say(4, text)
    if level() >= 5:
        say(5, codegen.compile_assembly(text, target))
    code = codegen.compile_object(text, target)
    cache.put(key, code)
    return code, False


class NativeFunction:
    """A loaded host function with its plan. Calls may overlap: each has an arena of its own."""

    def __init__(self, name: str, plan: Plan, library: codegen.Library) -> None:
        self.name, self.plan = name, plan
        self._library = library  # keeps the code in memory
        self.entry = _SIGNATURE(library.address(plan.host.name))
        self.runtime = runtime_table()
        self.constants = [tensor(c, copy=True) for c in plan.constants]
        self.arenas: deque[OwnedMemory] = deque()

    def call(self, flat: Sequence[Tensor]) -> BoundCall:
        """A prepared call on these inputs, whose types have been checked."""
        return BoundCall(self, flat)

    def borrow_arena(self) -> OwnedMemory:
        try:
            return self.arenas.pop()
        except IndexError:
            return OwnedMemory(max(64, self.plan.arena_bytes))

    def fresh_outputs(self) -> list[Tensor]:
        outputs = []
        for k in self.plan.fresh:
            info = self.plan.outputs[k]
            small = _nbytes(info) <= SmallMemory.limit
            outputs.append(Tensor(info.shape, info.dtype, memory=_small.take() if small else None))  # type: ignore[arg-type]
        return outputs


def _nbytes(info: Any) -> int:
    return math.prod(info.shape) * nbytes(info.dtype)


class BoundCall:
    """A call with its list of pointers laid out once: repeating it costs next to nothing in Python."""

    def __init__(self, native: NativeFunction, flat: Sequence[Tensor]) -> None:
        self.native, self.inputs = native, list(flat)
        plan = native.plan
        self.donated = tuple(plan.donated[k] for k in sorted(plan.donated))
        self._lock = threading.Lock()
        tensors = [*self.inputs, *native.constants]
        self._pointers = (ctypes.c_void_p * (len(tensors) + len(plan.fresh)))(*(t.data_ptr for t in tensors))
        self._first_output = len(tensors)
        self._infos = plan.inputs
        for index in self.donated:
            self._check_overlap(index)

    def set(self, index: int, value: Tensor) -> None:
        """Replace an input by a tensor of the same type."""
        info = self._infos[index]
        if value.shape != info.shape or value.dtype != info.dtype:
            given = f"Tensor({value.shape}, {value.dtype})"
            raise ArgumentError(f"{self.native.name}: input {index} must be {info}, got {given}")
        if value is self.inputs[index]:
            return
        self.inputs[index] = value
        self._pointers[index] = value.data_ptr
        self._check_overlap(index)

    def _check_overlap(self, index: int) -> None:
        """Donated memory must be nobody else's: an input that overlaps it would change under the kernels' feet."""
        first = self.inputs[index].data_ptr
        last = first + self.inputs[index].nbytes
        others = range(len(self.inputs)) if index in self.donated else self.donated
        for k in others:
            other = self.inputs[k]
            begin = other.data_ptr
            if begin < last and first < begin + other.nbytes and k != index:
                raise ArgumentError(f"{self.native.name}: inputs {index} and {k} share memory, and one is overwritten")

    def __call__(self) -> list[Tensor]:
        return self._run(None)

    def profile(self) -> Report:
        """Run once with the trace on."""
        names = self.native.plan.steps
        stamps = (ctypes.c_int64 * (len(names) + 1))()
        self._run(ctypes.addressof(stamps))
        return Report.of(self.native.name, names, list(stamps))

    def _run(self, trace: int | None) -> list[Tensor]:
        native = self.native
        outputs = native.fresh_outputs()
        arena = native.borrow_arena()
        with self._lock:  # the list of pointers is shared by all uses of this call
            for k, output in enumerate(outputs, self._first_output):
                self._pointers[k] = output.data_ptr
            status = native.entry(native.runtime, ctypes.addressof(self._pointers), arena.address, trace)
        native.arenas.append(arena)
        if status:
            where = "" if native.name.startswith("__") else f"{native.name}: "  # __step is no name of the user's
            raise ArgumentError(where + native.plan.messages[status - 1])
        return outputs
