"""LLVM IR text to object code, and object code to callable addresses.

The text is nearly final: values are numbered, invariants hoisted, tiles unrolled, lanes explicit. So two passes do:
SROA, which makes registers of local buffers, and the simplification of control flow. LLVM's -O2 made no kernel faster
and took twice the time. In the code generator scheduling runs, and strength reduction where it is of use.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
from collections.abc import Iterator

import llvmlite
import llvmlite.binding as llvm

from pullback.codegen import headroom, host, worker
from pullback.codegen.symbols import exported_symbol
from pullback.ir.errors import InternalError
from pullback.runtime import packed
from pullback.target import Target
from pullback.tir.figures import FEW_REGISTERS

LLVMLITE_VERSION: str = llvmlite.__version__
LLVM_VERSION = ".".join(map(str, llvm.llvm_version_info))
_numbers = itertools.count()


def compile_object(ir_text: str, target: Target) -> bytes:
    """Relocatable, position-independent object code; its only undefined symbols are functions of libm."""
    with host.lock:
        machine = host.machine(target.triple, target.cpu, target.features)
        with _well_formed():
            return worker.object_code(ir_text, machine, needs_strength_reduction(target))


def compile_assembly(ir_text: str, target: Target) -> str:
    """The same as assembly text, to look at."""
    with host.lock:
        machine = host.machine(target.triple, target.cpu, target.features)
        kept = needs_strength_reduction(target)
        with _well_formed(), contextlib.nullcontext() if kept else worker.without_strength_reduction():
            return machine.emit_assembly(worker.optimized(ir_text, machine))


def needs_strength_reduction(target: Target) -> bool:
    """Whether LLVM has to make variables of addresses. Instructions of x86-64 add up the parts of an address that
    change in a loop; but where registers for vectors are few, sums went to memory without. WebAssembly's loads add a
    constant, for which engines have an instruction's own addresses; each variable would take a register of theirs."""
    if target.is_wasm:
        return False
    return target.arch not in ("x86_64", "amd64") or target.registers <= FEW_REGISTERS


@contextlib.contextmanager
def _well_formed() -> Iterator[None]:
    """Inside a text is compiled."""
    try:
        yield
    except RuntimeError as error:
        raise InternalError(f"the generated LLVM IR is not well-formed: {error}") from None


class Library:
    """Object code loaded into this process; its functions live as long as this object does."""

    def __init__(self, jit: llvm.LLJIT, name: str, tracker: llvm.ResourceTracker) -> None:
        self._jit, self._name, self._trackers = jit, name, [tracker]
        self._addresses: dict[str, int] = {}

    def address(self, name: str) -> int:
        """Where the exported function begins."""
        known = self._addresses.get(name)
        if known is None:
            with host.lock:
                try:
                    symbol = exported_symbol(name)
                    tracker = self._jit.lookup(self._name, symbol)
                except RuntimeError as error:
                    raise InternalError(f"the object has no function {name!r}: {error}") from None
            self._trackers.append(tracker)
            known = self._addresses[name] = tracker[symbol]
        return known


@functools.cache
def _linker() -> llvm.LLJIT:
    """The JIT linker of this process; nothing is compiled in it."""
    host.initialize()
    if hasattr(llvm, "load_library_permanently") and sys.platform.startswith("linux"):
        with contextlib.suppress(RuntimeError):  # libm is in the process already where it is not a library of its own
            llvm.load_library_permanently("libm.so.6")
    machine = host.machine(host.triple(), host.cpu(), host.features())
    return llvm.create_lljit_compiler(machine, use_jit_link=True)


def load_object(*codes: bytes) -> Library:
    """Link object code made for this machine, one object or several that refer to each other, into this process."""
    headroom.require(headroom.LITTLE + 8 * sum(map(len, codes)), "load compiled code")
    with host.lock:
        name = f"pullback{next(_numbers)}"
        builder = llvm.JITLibraryBuilder()
        for code in codes:
            builder.add_object_img(code)
        builder.add_current_process()
        if any(packed.SYMBOL.encode() in code for code in codes):
            builder.import_symbol(packed.SYMBOL, packed.address())
        try:
            tracker = builder.link(_linker(), name)
        except RuntimeError as error:
            raise InternalError(f"the object code can't be loaded: {error}") from None
        return Library(_linker(), name, tracker)
