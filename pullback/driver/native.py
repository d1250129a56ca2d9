"""Native functions: a function of a module planned, compiled, cached, loaded, and called through pointers.

The cache has two levels. The key of the first is the module before any pass, so that a later process does nothing but
read a file. The keys of the second are single kernels' loop IR, so that functions share those that they have in common.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from weakref import WeakSet

from pullback import codegen
from pullback.codegen import headroom
from pullback.driver import watch
from pullback.driver.artifact import Artifact, Layout
from pullback.driver.cache import object_cache
from pullback.driver.collector import rare_collections
from pullback.driver.debug import level, say
from pullback.driver.keys import function_key, object_key, part
from pullback.driver.options import Options
from pullback.driver.pipeline import plan_function
from pullback.ir.errors import ArgumentError, CompileError, InternalError
from pullback.ir.module import IRModule
from pullback.relax.transform.memory.host import OUT_OF_MEMORY
from pullback.runtime import packed, ranks
from pullback.runtime.collectives import check_ranks
from pullback.runtime.epoch import Epoch
from pullback.runtime.flights import Flights
from pullback.runtime.library import runtime_table
from pullback.runtime.memory import OwnedMemory
from pullback.runtime.ranks import Ranks
from pullback.runtime.report import Report, median_run
from pullback.runtime.slab import SmallMemory
from pullback.runtime.tensor import Tensor, tensor, zeros
from pullback.target import Target
from pullback.tir.stmt import PrimFunc

_SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4)  # runtime, buffers, arena, trace
_small = SmallMemory()


@rare_collections()
def compile_function(module: IRModule, name: str, sizes: dict[str, int], target: Target) -> NativeFunction:
    """Compile (or take from the cache) and load one function of a prepared module."""
    start = perf_counter()
    options, reached = Options.of(target), part(module, name)
    key = function_key(reached, name, sizes, target, options)
    try:
        # Ranks compile the same at the same moment: on one machine, one does, and the others read it.
        with object_cache().in_turn(key) if ranks.current().size > 1 else contextlib.nullcontext():
            native = _cached(key, reached, name, sizes) if level() < 2 else None
            source = "compiled" if native is None else "read from the cache"
            if native is None:
                native, artifact = _made(reached, name, sizes, target, options)
                object_cache().put(key, artifact.to_bytes())
    except MemoryError:
        raise CompileError(f"there is not enough memory to compile {name}", hint=headroom.HINT) from None
    layout = native.layout
    say(
        1,
        f"# {name}: {source} in {1e3 * (perf_counter() - start):.0f} ms; {len(layout.steps)} kernel calls, "
        f"{layout.arena_bytes} bytes of arena, {native.code_bytes} bytes of code",
    )
    return native


def _cached(key: str, module: IRModule, name: str, sizes: dict[str, int]) -> NativeFunction | None:
    """What the cache has under the key, if it is this function's and can be loaded."""
    data = object_cache().get(key)
    if data is None:
        return None
    try:
        artifact = Artifact.from_bytes(data)
        artifact.check(name, module[name], sizes)
        return NativeFunction(name, artifact)
    except (ValueError, InternalError):
        return None


def _made(
    module: IRModule, name: str, sizes: dict[str, int], target: Target, options: Options
) -> tuple[NativeFunction, Artifact]:
    """The function compiled and loaded, and what it was made of."""
    artifact = _make(module, name, sizes, target, options)
    try:
        return NativeFunction(name, artifact), artifact
    except InternalError:  # what the cache had under the keys of kernels was no code
        artifact = _make(module, name, sizes, target, options, anew=True)
        return NativeFunction(name, artifact), artifact


def _make(
    module: IRModule,
    name: str,
    sizes: dict[str, int],
    target: Target,
    options: Options | None = None,
    anew: bool = False,
) -> Artifact:
    plan = plan_function(module, name, sizes, target, options)
    code = object_code(plan.host, plan.kernels, target, anew, plan.inner)
    artifact = Artifact(Layout.of(plan), tuple(plan.constants), code)
    try:
        artifact.check(name, module[name], sizes)
    except ValueError as error:
        raise InternalError(str(error)) from None
    return artifact


def object_code(
    host: PrimFunc,
    kernels: Mapping[str, PrimFunc],
    target: Target,
    anew: bool = False,
    inner: Mapping[str, PrimFunc] | None = None,
) -> tuple[bytes, ...]:
    """The object code of a host function, with the ``inner`` ones that it calls, and of each of the kernels, from the
    cache where it is there, unless it is to be made ``anew``. Each is kept as soon as it is compiled, so who is
    interrupted goes on there.

    A kernel's symbol says what it computes. So kernels that differ in their names only are one, in this function and in
    all that find it in the cache.
    """
    symbols = {n: f"kernel.{hashlib.sha256(k.digest).hexdigest()[:32]}" for n, k in kernels.items()}
    entry = hashlib.sha256(host.name.encode() + host.digest)
    for name, function in (inner or {}).items():
        entry.update(name.encode() + function.digest)
    called = codegen.called_kernels(host, *(inner or {}).values())
    entry.update(repr([(n, symbols[n]) for n in called]).encode())
    names = {entry.hexdigest(): host.name}
    emitters: dict[str, Callable[[], str]] = {
        entry.hexdigest(): lambda: codegen.emit_host(host, target, kernels, symbols, inner)
    }
    for name, kernel in kernels.items():
        symbol = symbols[name]
        names.setdefault(symbol, name)
        emitters.setdefault(symbol, partial(codegen.emit_kernel, kernel, target, symbol))
    cache, read = object_cache(), level() < 4 and not anew
    found = {key: cache.get(object_key(key, target)) if read else None for key in emitters}
    missing = [key for key, code in found.items() if code is None]
    count = watch.kernels()
    if count is not None:
        count.begin(len(missing))

    def text_of(key: str) -> str:
        watch.look()
        return _shown(emitters[key](), target)

    def keep(number: int, code: bytes) -> None:
        cache.put(object_key(missing[number], target), code)
        if count is not None:
            count.finish(number)

    try:
        made = codegen.compile_objects(map(text_of, missing), target, keep)
    except codegen.CompilerDied as died:
        message = f"{names[missing[died.number]]} could not be compiled: {died}"
        raise CompileError(message, hint=headroom.HINT) from None
    found |= zip(missing, made, strict=True)
    return tuple(code for code in found.values() if code is not None)


def _shown(text: str, target: Target) -> str:
    """The LLVM IR, shown on the debug ladder's fourth rung, its assembly on the fifth."""
    say(4, text)
    if level() >= 5:
        say(5, codegen.compile_assembly(text, target))
    return text


class NativeFunction:
    """A loaded host function. Calls may overlap: each has an arena of its own."""

    def __init__(self, name: str, artifact: Artifact) -> None:
        self.name, self.layout = name, artifact.layout
        self.code_bytes = sum(map(len, artifact.objects))
        self._library = codegen.load_object(*artifact.objects)  # keeps the code in memory
        self.address = self._library.address(self.layout.entry)
        self.entry = _SIGNATURE(self.address)
        runtime_table()  # an environment that is not allowed is found here
        self.constants = [tensor(c, copy=True) for c in artifact.constants]
        self.arenas: deque[OwnedMemory] = deque()
        self._met: WeakSet[Ranks] = WeakSet()
        fresh = [self.layout.outputs[k] for k in self.layout.fresh]
        self._fresh = [(zeros(kind.shape, kind.dtype), kind.nbytes) for kind in fresh]  # memory that nobody asks for

    def call(self, flat: Sequence[Tensor]) -> BoundCall:
        """A prepared call on these inputs, whose types have been checked."""
        return BoundCall(self, flat)

    def meet(self, mine: Ranks) -> None:
        """See that there are as many ranks as it was compiled for, and, once, that all of them send the same."""
        check_ranks(self.name, mine.size, self.layout.ranks)
        if mine.size > 1 and mine not in self._met:
            mine.agree(f"what {self.name} sends (a digest)", self.layout.sent)
            self._met.add(mine)

    def borrow_arena(self) -> OwnedMemory:
        try:
            return self.arenas.pop()
        except IndexError:
            return OwnedMemory(max(64, self.layout.arena_bytes))

    def fresh_outputs(self) -> list[Tensor]:
        return [
            kind._with_memory(_small.take() if nbytes <= SmallMemory.limit else OwnedMemory(nbytes))
            for kind, nbytes in self._fresh
        ]


def _extent(value: Tensor) -> tuple[int, int]:
    """Where the memory begins and ends."""
    first = value.data_ptr
    return first, first + value.nbytes


class BoundCall:
    """A call with its list of pointers laid out once: repeating it costs next to nothing in Python."""

    def __init__(self, native: NativeFunction, flat: Sequence[Tensor]) -> None:
        self.native, self.inputs = native, list(flat)
        self.donated = tuple(i for _, i in native.layout.donated)
        # A signal's handler may call again, just when the native function has returned. Forks wait: executable.bind.
        self._lock = threading.RLock()
        tensors = [*self.inputs, *native.constants]
        self._first_output = len(tensors)
        self._pointers = (ctypes.c_void_p * (len(tensors) + len(native.layout.fresh)))(*(t.data_ptr for t in tensors))
        self._extents = [_extent(t) for t in self.inputs]
        for index in self._suspects():
            self._check_memory(index)

    def set(self, index: int, value: Tensor) -> None:
        """Replace an input by a tensor of the same type."""
        if not 0 <= index < len(self.inputs):
            raise ArgumentError(f"{self.native.name} has {len(self.inputs)} inputs, there is no input {index}")
        kind = self.native.layout.inputs[index]
        if value.shape != kind.shape or value.dtype != kind.dtype:
            given = f"Tensor({value.shape}, {value.dtype})"
            raise ArgumentError(f"{self.native.name}: input {index} must be {kind}, got {given}")
        if value is self.inputs[index]:
            return
        self.inputs[index] = value
        self._pointers[index], self._extents[index] = value.data_ptr, _extent(value)
        self._check_memory(index)

    def _suspects(self) -> list[int]:
        """The donated inputs, if any is read-only or any two inputs share memory."""
        begins = sorted(extent for extent in self._extents if extent[0] < extent[1])
        apart = all(a[1] <= b[0] for a, b in itertools.pairwise(begins))
        return [] if apart and all(self.inputs[i].writable for i in self.donated) else list(self.donated)

    def _check_memory(self, index: int) -> None:
        """Donated memory must be writable and no other input's, which would change under the kernels' feet."""
        if index in self.donated and not self.inputs[index].writable:
            message = f"{self.native.name}: input {index} is overwritten, but its memory is read-only"
            raise ArgumentError(message, hint="pass pullback.tensor(array, copy=True)")
        first, last = self._extents[index]
        others = range(len(self.inputs)) if index in self.donated else self.donated
        for k in others:
            begin, end = self._extents[k]
            if begin < last and first < end and k != index:
                raise ArgumentError(
                    f"{self.native.name}: inputs {index} and {k} share memory, and one is overwritten",
                    hint="give copies: array.copy()",
                )

    def __call__(self) -> list[Tensor]:
        return self._run(None)

    def profile(self, runs: int = 1, together: bool = False) -> Report:
        """Run with the trace on, and tell of the median of ``runs``. ``together``: all ranks do so; each tells of its
        own part in one run, the median by the rank that took longest."""
        mine, names = ranks.current(), self.native.layout.steps
        stamps = (ctypes.c_int64 * (len(names) + 1))()
        flights = Flights(mine)
        found: list[Report] = []
        while len(found) < runs:
            if together:
                mine.barrier()
            with flights:
                start = perf_counter()
                self._run(ctypes.addressof(stamps))
                wall = 1e6 * (perf_counter() - start)
            if flights.started > flights.room:  # on all ranks: once more, with room for all of them
                flights = Flights(mine, flights.started)
                continue
            found.append(Report.of(self.native.name, names, list(stamps), wall, flights.times(stamps[0])))
        walls = [report.wall for report in found]
        longest = [max(several) for several in zip(*mine.exchange(walls), strict=True)] if together else walls
        return found[median_run(longest)]

    def repeat(self, epoch: Epoch, seconds: float) -> None:
        """Gather and call, until the epoch's batches are done or so many seconds have passed; at least once.

        The tensors that the epoch gathers into are inputs of this call. The first result is the loss, the second its
        divisor; what overwrites no input is lost.
        Raises ArgumentError when a check fails; then ``epoch.done`` is the number of the batch that failed it. Raises
        RankError when another rank fails.
        """

        def entry(runtime: int, buffers: int, arena: int, trace: None) -> int:
            return epoch.run(self.native.address, runtime, buffers, arena, outputs[:2], seconds)

        outputs = self.native.fresh_outputs()
        self._call(entry, outputs, None)

    def _run(self, trace: int | None) -> list[Tensor]:
        outputs = self.native.fresh_outputs()
        self._call(self.native.entry, outputs, trace)
        return outputs

    def _call(self, entry: Callable[..., int], outputs: list[Tensor], trace: int | None) -> None:
        native = self.native
        mine = ranks.current()
        if native.layout.sent:
            native.meet(mine)
        arena = native.borrow_arena()
        with self._lock:  # the list of pointers is shared by all uses of this call
            for k, output in enumerate(outputs, self._first_output):
                self._pointers[k] = output.data_ptr
            status = entry(mine.table, ctypes.addressof(self._pointers), arena.address, trace)
        mine.check()
        native.arenas.append(arena)
        if status:
            where = "" if native.name.startswith("__") else f"{native.name}: "  # __step is no name of the user's
            message = native.layout.messages[status - 1]
            failure = packed.take_failure()
            if failure is not None:
                raise packed.reported(failure, where + message) from failure
            raise (MemoryError if message.startswith(OUT_OF_MEMORY) else ArgumentError)(where + message)
