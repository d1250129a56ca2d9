"""Functions of the loop IR as one LLVM module, in text.

A kernel becomes ``void name(ptr rt, ptr buffer…, scalar…)``; each of its parallel loops a task that the runtime runs; a
host function the exported ``i32 name(ptr rt, ptr buffers, ptr arena, ptr trace)``. Host functions call others of the
module in the same way, without a trace; those with the attribute ``inner`` are not exported. A heap of a host
function's own lies on its stack, and is given back before each return.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.codegen.builder import FunctionBuilder, Globals
from pullback.codegen.float_mode import flushes, flushing
from pullback.codegen.host import whole_triple
from pullback.codegen.own_copies import OwnCopies
from pullback.codegen.poly import Poly
from pullback.codegen.statements import Statements, stored_buffers
from pullback.codegen.values import Value, memory_type, register_type
from pullback.ir.depth import deep
from pullback.ir.errors import InternalError
from pullback.ir.node import Node
from pullback.target import Target
from pullback.tir.caches import LINE
from pullback.tir.expr import INTRINSICS, Buffer, BufferLoad, IntImm, PrimExpr, Var, nbytes
from pullback.tir.ranges import LARGEST_SIZE
from pullback.tir.stmt import (
    DEPTH,
    FLUSH_SUBNORMALS,
    LEVELS,
    Box,
    BufferStore,
    Check,
    For,
    HostCall,
    KernelCall,
    Prefetch,
    PrimFunc,
    Recur,
    Release,
    Stmt,
    Stop,
    Unbox,
    While,
    seq,
)
from pullback.tir.visitor import walk

_LIBM = {*INTRINSICS, "fmod", "rint", "fabs"}
_SLOTS = {"parallel_for": 1, "now_ns": 2, "parallel_share": 3}
_STREAMS = ("x86_64", "amd64")  # has stores past the caches, and must be told to
RUNTIME = "{ i64, ptr, ptr, ptr }"  # struct pb_runtime: abi, parallel_for, now_ns, parallel_share
_WITH_HEAP = "{ i64, ptr, ptr, ptr, ptr, ptr }"  # and grow, shrink
_HEAP_SLOTS = {"grow": 4, "shrink": 5}
_POISONS = 3  # the number of the heap's word that says so
_GRAIN = 8  # bytes to which small values in boxes are aligned; boxes are to lines


@deep
def emit_module(functions: Sequence[PrimFunc], target: Target) -> str:
    """The LLVM IR of the functions. Host functions are exported; kernels too when there are no host functions."""
    hosts = [f for f in functions if f.attrs.get("kind") == "host"]
    kernels = [f for f in functions if f.attrs.get("kind") != "host"]
    names = [f.name for f in functions]
    repeated = sorted({n for n in names if names.count(n) > 1})
    if repeated:
        raise InternalError(f"functions of one module with the same name: {', '.join(repeated)}")
    shared = Globals()
    linkage = "internal " if hosts else ""
    symbols = {k.name: f"kernel.{k.name}" if hosts else exported_symbol(k.name) for k in kernels}
    texts = [text for k in kernels for text in _Kernel(k, target, shared, symbols[k.name], linkage).emit()]
    by_name = {k.name: k for k in kernels}
    callees = {f.name: (f, exported_symbol(f.name)) for f in hosts}
    for f in hosts:
        texts.append(_Host(f, target, shared, by_name, symbols, "internal " * is_inner(f), callees).emit())
    return _module(target, shared, texts)


@deep
def emit_kernel(kernel: PrimFunc, target: Target, symbol: str) -> str:
    """The LLVM IR of a module with one kernel, whose symbol is seen by the objects that it is linked with alone."""
    shared = Globals()
    texts = _Kernel(kernel, target, shared, symbol, "hidden ").emit()
    return _module(target, shared, texts)


@deep
def emit_host(
    host: PrimFunc,
    target: Target,
    kernels: Mapping[str, PrimFunc],
    symbols: Mapping[str, str],
    inner: Mapping[str, PrimFunc] | None = None,
) -> str:
    """The LLVM IR of a module with one host function and those that it calls; the kernels are in other objects, under
    the given symbols."""
    shared, inner = Globals(), inner or {}
    for name in dict.fromkeys(called_kernels(host, *inner.values())):
        types = ["ptr" if isinstance(p, Buffer) else register_type(p.dtype) for p in kernels[name].params]
        symbol = _quoted(symbols[name])
        shared.declare(symbol, f"declare hidden void @{symbol}({', '.join(['ptr', *types])})")
    return _module(target, shared, _hosts(host, target, shared, kernels, symbols, inner))


def _hosts(
    host: PrimFunc,
    target: Target,
    shared: Globals,
    kernels: Mapping[str, PrimFunc],
    symbols: Mapping[str, str],
    inner: Mapping[str, PrimFunc],
    linkage: str = "",
) -> list[str]:
    """A host function, and those that it calls under names that begin with its own."""
    callees = {name: (f, f"{host.name}.{name}") for name, f in inner.items()}
    texts = [_Host(host, target, shared, kernels, symbols, linkage, callees).emit()]
    for f, symbol in callees.values():
        texts.append(_Host(f.renamed(symbol), target, shared, kernels, symbols, "internal ", callees).emit())
    return texts


@deep
def emit_library(
    hosts: Mapping[str, tuple[PrimFunc, Mapping[str, PrimFunc], Mapping[str, PrimFunc]]], target: Target
) -> str:
    """The LLVM IR of a module with host functions, each under the symbol that is its key, which only what it is linked
    with sees, and the kernels and the host functions that they call. Kernels that compute the same are one."""
    shared = Globals()
    texts: dict[str, list[str]] = {}
    for symbol, (host, kernels, inner) in hosts.items():
        symbols = {name: f"kernel.{hashlib.sha256(k.digest).hexdigest()[:32]}" for name, k in kernels.items()}
        for name, kernel in kernels.items():
            if symbols[name] not in texts:
                texts[symbols[name]] = _Kernel(kernel, target, shared, symbols[name], "internal ").emit()
        texts[symbol] = _hosts(replace(host, name=symbol), target, shared, kernels, symbols, inner, "hidden ")
    return _module(target, shared, [text for parts in texts.values() for text in parts])


def emit_data(blocks: Mapping[str, bytes], target: Target) -> str:
    """The LLVM IR of a module with read-only data, each block under its symbol and aligned to 64 bytes."""
    lines = [
        f'@{_quoted(symbol)} = hidden constant [{len(data)} x i8] c"{_bytes(data)}", align 64'
        for symbol, data in blocks.items()
    ]
    return _module(target, Globals(), lines)


_ESCAPED = [chr(b) if 32 <= b < 127 and chr(b) not in '"\\' else f"\\{b:02X}" for b in range(256)]


def _bytes(data: bytes) -> str:
    return "".join(map(_ESCAPED.__getitem__, data))


def _module(target: Target, shared: Globals, texts: Sequence[str]) -> str:
    head = f'target triple = "{whole_triple(target.triple)}"\n'
    return "\n".join([head, *shared.declarations.values(), *shared.definitions.values(), *texts])


def called_kernels(*hosts: PrimFunc) -> list[str]:
    """The names of the kernels that host functions call, one after another."""
    return [n.name for host in hosts for n in walk(host.body) if isinstance(n, KernelCall)]


def is_inner(host: PrimFunc) -> bool:
    """Whether only other host functions call it."""
    return bool(host.attrs.get("inner"))


def exported_symbol(name: str) -> str:
    """The symbol under which a function is exported: its name, or ``name_`` for one that is a function of libm."""
    return f"{name}_" if name in _LIBM or (name[-1:] in ("f", "l") and name[:-1] in _LIBM) else name


def _quoted(name: str) -> str:
    """A name as LLVM has it in text."""
    return name if re.fullmatch(r"[A-Za-z_.$][A-Za-z0-9_.$]*", name) else '"' + re.sub(r'["\\]', "_", name) + '"'


@dataclass(frozen=True)
class _Capture:
    """What a parallel loop's body uses of its surroundings: an operand of the kernel, or a buffer of each thread, and
    its type."""

    operand: str | Buffer
    type: str


class _Kernel:
    """Emits one kernel and its tasks."""

    def __init__(self, func: PrimFunc, target: Target, shared: Globals, symbol: str, linkage: str) -> None:
        self.func, self.target, self.shared = func, target, shared
        self.name, self.linkage = symbol, linkage
        self.tasks: list[str] = []
        self.loops = 0  # parallel ones

    def emit(self) -> list[str]:
        written = set(stored_buffers(self.func.body))
        builder = FunctionBuilder("", self.shared)
        streamed = [self.func.params[k] for k in self.func.attrs.get("streamed", ())]
        self.streamed = frozenset(streamed) if self.target.arch in _STREAMS else frozenset()
        # Schedules take a product and a sum as soon as an fma; users mean what they write.
        self.rounds = bool(self.func.attrs.get("scheduled"))
        emitter = Statements(builder, self.target, self.rounds, outline=self.outline, streamed=self.streamed)
        params = ["ptr %rt"]
        for i, param in enumerate(self.func.params):
            if isinstance(param, Buffer):
                params.append(_pointer_parameter(f"%b{i}", param, written))
            else:
                params.append(f"{register_type(param.dtype)} %s{i}")
                emitter.env[param] = _scalar_meaning(emitter, param, f"%s{i}")
        for i, param in enumerate(self.func.params):
            if isinstance(param, Buffer):
                emitter.bind_buffer(param, f"%b{i}")
        emitter.stmt(self.func.body)
        emitter.finish()
        builder.header = f"define {self.linkage}void @{_quoted(self.name)}({', '.join(params)})"
        return [*self.tasks, builder.text()]

    def outline(self, emitter: Statements, node: For) -> None:
        """The body of a parallel loop as a function of its own, and the call that has the runtime run it."""
        task = f"{self.name}.task{self.loops}"
        self.loops += 1
        extent = emitter.poly(node.extent)
        own = OwnCopies.of(node)
        if own is None:
            captures = self._body(emitter, node.body, f"{task}.body", node)
            self.tasks.append(_task_entry(task, captures))
            self._call(emitter, task, captures, extent, "parallel_for")
            return
        memory = {b: emitter.local_memory(b) for b in own.buffers}
        with contextlib.ExitStack() as stack:
            for buffer in own.buffers:
                stack.enter_context(emitter.placed(buffer, memory[buffer]))
            filled = self._body(emitter, seq(*own.fills), f"{task}.fill", new=own.buffers)
            captures = self._body(emitter, own.loop.body, f"{task}.body", node)
        fields = list(dict.fromkeys(c for c in (*filled, *captures) if isinstance(c.operand, str)))
        sizes = {b: (m.count, memory_type(b.dtype)) for b, m in memory.items()}
        self.tasks.append(_thread_entry(task, fields, sizes, filled, captures))
        self._call(emitter, task, fields, extent, "parallel_share")

    def _call(self, emitter: Statements, task: str, fields: list[_Capture], extent: Poly, function: str) -> None:
        """The runtime's function runs the task on a closure with these fields."""
        builder = emitter.builder
        closure = builder.name("closure")
        builder.entry.append(f"  {closure} = alloca [{len(fields)} x i64], align 8")
        for i, capture in enumerate(fields):
            field = builder.pure(f"getelementptr i64, ptr {closure}, i32 {i}")
            builder.effect(f"store {capture.type} {capture.operand}, ptr {field}")
        slot = builder.pure(f"getelementptr {RUNTIME}, ptr %rt, i32 0, i32 {_SLOTS[function]}")
        run = builder.pure(f"load ptr, ptr {slot}", 0)
        builder.effect(f"call void {run}(ptr %rt, ptr @{_quoted(task)}, ptr {closure}, i64 {emitter.scalar(extent)})")

    def _body(
        self, outer: Statements, node: Stmt, name: str, loop: For | None = None, new: Sequence[Buffer] = ()
    ) -> list[_Capture]:
        """A function that does a statement, for ``begin`` to ``end`` of a loop if there is one; ``new``: buffers
        that are filled in it. Returns what its first parameters are."""
        builder = FunctionBuilder("", self.shared)
        inner = Statements(builder, self.target, self.rounds, streamed=self.streamed)
        captures: list[_Capture] = []
        params: list[str] = []
        buffers = _used_buffers(node, outer)
        for var in _free_variables(node, outer, buffers):
            meaning = outer.env[var]
            if isinstance(meaning, Poly) and meaning.const is not None:
                inner.env[var] = meaning
                continue
            parameter = f"%s{len(captures)}"
            value = outer.poly_value(meaning) if isinstance(meaning, Poly) else meaning
            bounds = meaning.range if isinstance(meaning, Poly) else None
            inner.env[var] = _scalar_meaning(inner, var, parameter, bounds)
            captures.append(_Capture(value.ref, value.type))
            params.append(f"{value.type} {parameter}")
        written = set(stored_buffers(node))
        for buffer in buffers:
            parameter = f"%b{len(captures)}"
            pointer = outer.memory[buffer].pointer
            captures.append(_Capture(pointer or buffer, "ptr"))
            params.append(_pointer_parameter(parameter, buffer, written))
            inner.adopt(buffer, outer.memory[buffer], parameter)
        if loop is None:
            for buffer in new:
                inner.clear_padding(buffer)
            inner.stmt(node)
        else:
            params += ["i64 %begin", "i64 %end"]
            bounds = outer.poly(loop.extent).range
            with builder.counting("%begin", "%end") as index:
                atom = inner.atom(
                    index, (0, bounds[1] - 1) if bounds is not None and bounds[1] > 0 else (0, LARGEST_SIZE)
                )
                with inner.bound(loop.var, Poly.of(atom)):
                    inner.stmt(node)
        inner.finish()
        builder.header = f"define internal void @{_quoted(name)}({', '.join(params)}) noinline"
        self.tasks.append(builder.text())
        return captures


def _pointer_parameter(name: str, buffer: Buffer, written: set[Buffer]) -> str:
    """Parameters never overlap, so a buffer that is only read does not change."""
    return f"ptr noalias {'' if buffer in written else 'readonly '}{name}"


def _scalar_meaning(emitter: Statements, var: Var, ref: str, bounds: tuple[int, int] | None = None) -> Poly | Value:
    if var.dtype == "int64":
        return Poly.of(emitter.atom(ref, bounds))
    return Value(ref, var.dtype)


def _free_variables(node: Stmt, outer: Statements, buffers: list[Buffer]) -> list[Var]:
    """The variables of the surroundings that a statement uses, those in the shapes of its buffers too."""
    used = {n: None for n in walk(node) if isinstance(n, Var)}
    for buffer in buffers:
        for size in buffer.shape:
            if not isinstance(size, int):
                used.update({n: None for n in walk(size) if isinstance(n, Var)})
    return [v for v in used if v in outer.env]


def _used_buffers(node: Stmt, outer: Statements) -> list[Buffer]:
    used = {n.buffer: None for n in walk(node) if isinstance(n, (BufferLoad, BufferStore, Prefetch))}
    return [b for b in used if b in outer.memory]


def _loaded(builder: FunctionBuilder, fields: Sequence[_Capture]) -> dict[_Capture, str]:
    """The fields of a closure, each with its type; none is larger than 8 bytes, so each has as many."""
    found = {}
    for i, capture in enumerate(fields):
        field = builder.fresh(f"getelementptr i64, ptr %closure, i32 {i}")
        found[capture] = f"{capture.type} {builder.fresh(f'load {capture.type}, ptr {field}')}"
    return found


def _task_entry(name: str, captures: list[_Capture]) -> str:
    """``void task(ptr closure, i64 begin, i64 end)``: unpacks the closure, so that the body's pointers don't alias."""
    builder = FunctionBuilder(f"define internal void @{_quoted(name)}(ptr %closure, i64 %begin, i64 %end)", None)
    given = _loaded(builder, captures)
    operands = [*(given[c] for c in captures), "i64 %begin", "i64 %end"]
    builder.effect(f"call void @{_quoted(name + '.body')}({', '.join(operands)})")
    builder.effect("ret void")
    return builder.text()


def _thread_entry(
    name: str,
    fields: list[_Capture],
    own: Mapping[Buffer, tuple[int, str]],
    filled: list[_Capture],
    captures: list[_Capture],
) -> str:
    """``void work(ptr closure, ptr share)``: fills the thread's ``own`` buffers, then does what its share gives it."""
    builder = FunctionBuilder(f"define internal void @{_quoted(name)}(ptr %closure, ptr %share)", None)
    given = _loaded(builder, fields)
    for buffer, (count, kind) in own.items():
        given[_Capture(buffer, "ptr")] = f"ptr {builder.alloca(count, kind)}"
    spot = builder.alloca(2, "i64")
    following = builder.fresh("load ptr, ptr %share")
    builder.effect(f"call void @{_quoted(name + '.fill')}({', '.join(given[c] for c in filled)})")
    head, some, none = (builder.label(stem) for stem in ("head", "some", "none"))
    builder.branch(head)
    builder.start(head)
    answer = builder.fresh(f"call i32 {following}(ptr %share, ptr {spot})")
    builder.branch_if(builder.fresh(f"icmp ne i32 {answer}, 0"), some, none)
    builder.start(some)
    begin = builder.fresh(f"load i64, ptr {spot}")
    end = builder.fresh(f"load i64, ptr {builder.fresh(f'getelementptr i64, ptr {spot}, i32 1')}")
    operands = [*(given[c] for c in captures), f"i64 {begin}", f"i64 {end}"]
    builder.effect(f"call void @{_quoted(name + '.body')}({', '.join(operands)})")
    builder.branch(head)
    builder.start(none)
    builder.effect("ret void")
    return builder.text()


class _HostStatements(Statements):
    """Adds the statements that only host functions have."""

    def __init__(
        self, builder: FunctionBuilder, target: Target, kernels: Mapping[str, PrimFunc], symbols: Mapping[str, str],
        func: PrimFunc, callees: Mapping[str, tuple[PrimFunc, str]],
    ) -> None:  # fmt: skip
        super().__init__(builder, target)
        self.kernels, self.symbols, self.callees, self.calls = kernels, symbols, callees, 0
        self.is_traced = not is_inner(func)
        self.slots = {buffer: number for number, buffer in enumerate(func.buffers)}
        self.recurs = any(isinstance(n, Recur) for f in (func, *(c for c, _ in callees.values())) for n in walk(f.body))
        calls = [n for n in walk(func.body) if isinstance(n, (HostCall, Recur))] if self.recurs else []
        self.most_pointers, self.place = max((len(n.buffers) for n in calls), default=1), None
        self.heaps = {b: self.own_heap(b, bool(func.attrs.get("poison"))) for b in _own_heaps(func)}

    def stmt_kernelcall(self, node: KernelCall) -> None:
        kernel = self.kernels.get(node.name)
        if kernel is None:
            raise InternalError(f"there is no kernel {node.name!r} in this module")
        scalars = [p for p in kernel.params if not isinstance(p, Buffer)]
        if len(kernel.buffers) != len(node.buffers) or len(scalars) != len(node.scalars):
            raise InternalError(f"{node.name} takes {len(kernel.params)} arguments")
        self.trace()
        operands = ["ptr %rt"]
        buffers, values = iter(node.buffers), iter(node.scalars)
        for param in kernel.params:
            if isinstance(param, Buffer):
                operands.append(f"ptr {self.address(next(buffers))}")
            else:
                operands.append(self.value(next(values)).typed)
        self.builder.effect(f"call void @{_quoted(self.symbols[node.name])}({', '.join(operands)})")
        self.written(*node.buffers)

    def stmt_check(self, node: Check) -> None:
        byte = self.builder.fresh(f"load i8, ptr {self.address(node.buffer)}")
        self.leave_if(f"icmp eq i8 {byte}, 0", str(node.code))

    def stmt_hostcall(self, node: HostCall) -> None:
        rows = node.rows or (IntImm(0),) * len(node.buffers)
        self.call_host(node.name, node.buffers, rows, node.arena)
        self.written(*node.buffers)

    def stmt_recur(self, node: Recur) -> None:
        heap = self.address(node.heap)
        place = self.builder.fresh(f"getelementptr i64, ptr {heap}, i64 {DEPTH}")
        depth = self.builder.fresh(f"load i64, ptr {place}")
        self.leave_if(f"icmp sge i64 {depth}, {node.most}", str(node.too_deep))
        self.builder.effect(f"store i64 {self.builder.fresh(f'add i64 {depth}, 1')}, ptr {place}")
        rows, arena = (IntImm(0),) * len(node.buffers), "null"
        if node.nbytes:
            levels = self.builder.fresh(f"getelementptr i64, ptr {heap}, i64 {LEVELS}")
            mark = self.builder.fresh(f"load i64, ptr {levels}")
            arena = self.grown(levels, node.nbytes, node.code)
        self.call_host(node.name, node.buffers, rows, arena)
        if node.nbytes:
            self.shrink(levels, mark)
        self.builder.effect(f"store i64 {depth}, ptr {place}")
        self.written(*node.buffers, node.heap)

    def call_host(
        self, name: str, buffers: Sequence[Buffer], rows: Sequence[PrimExpr], arena: Buffer | str | None
    ) -> None:
        callee, symbol = self.callees.get(name, (None, ""))
        if callee is None:
            raise InternalError(f"there is no host function {name!r} in this module")
        if len(callee.params) != len(buffers):
            raise InternalError(f"{name} takes {len(callee.params)} arguments")
        self.trace()
        place = self.pointers(len(buffers))
        for k, (buffer, row, param) in enumerate(zip(buffers, rows, callee.buffers, strict=True)):
            pointer, number = self.address(buffer), self.poly(row)
            if number.const != 0:
                offset = self.scalar(number.scaled(_piece_bytes(param)))
                pointer = self.builder.fresh(f"getelementptr i8, ptr {pointer}, i64 {offset}")
            slot = self.builder.fresh(f"getelementptr ptr, ptr {place}, i64 {k}")
            self.builder.effect(f"store ptr {pointer}, ptr {slot}")
        memory = "null" if arena is None else arena if isinstance(arena, str) else self.address(arena)
        arguments = f"ptr %rt, ptr {place}, ptr {memory}, ptr null"
        status = self.builder.fresh(f"call i32 @{_quoted(symbol)}({arguments})")
        self.leave_if(f"icmp ne i32 {status}, 0", status)

    def pointers(self, count: int) -> str:
        """A place on the stack for the pointers that a host function gets. Where functions recur all calls have one."""
        if not self.recurs:
            return self.at_entry(f"alloca [{max(1, count)} x ptr], align 16")
        if self.place is None:
            self.place = self.at_entry(f"alloca [{self.most_pointers} x ptr], align 16")
        return self.place

    def leave_if(self, condition: str, status: str) -> None:
        failed, passed = self.builder.label("failed"), self.builder.label("passed")
        self.builder.branch_if(self.builder.fresh(condition), failed, passed)
        self.builder.start(failed)
        self.leave(status)
        self.builder.start(passed)

    def stmt_while(self, node: While) -> None:
        changed = stored_buffers(node)
        head, body, after = (self.builder.label(stem) for stem in ("while", "do", "done"))
        self.builder.branch(head)
        self.builder.start(head)
        self.written(*changed)
        self.builder.branch_if(self.value(node.condition).ref, body, after)
        self._branch(body, node.body, head)
        self.builder.start(after)
        self.written(*changed)

    def stmt_stop(self, node: Stop) -> None:
        self.leave(str(node.code))
        self.builder.start(self.builder.label("never"))

    def leave(self, status: str) -> None:
        """Return; heaps of this function's own are given back."""
        for heap in self.heaps.values():
            self.shrink(heap, "0")
            if self.recurs:
                self.shrink(self.builder.fresh(f"getelementptr i64, ptr {heap}, i64 {LEVELS}"), "0")
        self.builder.effect(f"ret i32 {status}")

    # ---- boxes

    def own_heap(self, buffer: Buffer, poisons: bool) -> str:
        """A heap on the stack, empty."""
        (words,) = buffer.shape
        place = self.at_entry(f"alloca [{words} x i64], align {LINE}")
        for k in range(words):  # type: ignore[arg-type]
            slot = self.at_entry(f"getelementptr i64, ptr {place}, i64 {k}")
            self.builder.entry.append(f"  store i64 {int(poisons and k % LEVELS == _POISONS)}, ptr {slot}")
        return place

    def of_runtime(self, name: str) -> str:
        """A function of the runtime's heaps."""
        slot = self.builder.fresh(f"getelementptr {_WITH_HEAP}, ptr %rt, i32 0, i32 {_HEAP_SLOTS[name]}")
        return self.builder.fresh(f"load ptr, ptr {slot}")

    def grown(self, heap: str, count: int, code: int) -> str:
        """So many bytes more; the function is left where there is no memory."""
        begin = self.builder.fresh(f"call ptr {self.of_runtime('grow')}(ptr %rt, ptr {heap}, i64 {count})")
        self.leave_if(f"icmp eq ptr {begin}, null", str(code))
        return begin

    def shrink(self, heap: str, mark: str) -> None:
        self.builder.effect(f"call void {self.of_runtime('shrink')}(ptr %rt, ptr {heap}, i64 {mark})")

    def stmt_box(self, node: Box) -> None:
        places, size = _laid_out(node.fields)
        begin = self.grown(self.address(node.heap), size, node.code)
        self.builder.effect(f"store i64 {node.kind}, ptr {begin}")
        for buffer, place in zip(node.fields, places, strict=True):
            inside = self.builder.fresh(f"getelementptr i8, ptr {begin}, i64 {place}")
            self.move(self.aligned(inside, _GRAIN), self.at(buffer), _piece_bytes(buffer))
        number = self.builder.fresh(f"ptrtoint ptr {begin} to i64")
        self.builder.effect(f"store i64 {number}, ptr {self.address(node.handle)}")
        self.written(*stored_buffers(node))

    def stmt_unbox(self, node: Unbox) -> None:
        places, _ = _laid_out(node.fields)
        number = self.builder.fresh(f"load i64, ptr {self.address(node.handle)}")
        empty, full, after = (self.builder.label(stem) for stem in ("empty", "full", "unboxed"))
        self.builder.branch_if(self.builder.fresh(f"icmp eq i64 {number}, 0"), empty, full)
        self.builder.start(empty)
        for buffer in node.fields:
            self.clear(self.at(buffer), _piece_bytes(buffer))
        self.builder.branch(after)
        self.builder.start(full)
        begin = self.builder.fresh(f"inttoptr i64 {number} to ptr")
        kind, other, same = self.builder.fresh(f"load i64, ptr {begin}"), *map(self.builder.label, ("other", "same"))
        self.builder.branch_if(self.builder.fresh(f"icmp ne i64 {kind}, {node.kind}"), other, same)
        self.builder.start(other)
        self.leave(str(node.code))
        self.builder.start(same)
        for buffer, place in zip(node.fields, places, strict=True):
            inside = self.builder.fresh(f"getelementptr i8, ptr {begin}, i64 {place}")
            self.move(self.at(buffer), self.aligned(inside, _GRAIN), _piece_bytes(buffer))
        self.builder.branch(after)
        self.builder.start(after)
        self.written(*node.fields)

    def stmt_release(self, node: Release) -> None:
        mark = self.builder.fresh(f"load i64, ptr {self.address(node.mark)}")
        self.shrink(self.address(node.heap), mark)
        self.written(node.heap)

    def at(self, buffer: Buffer) -> str:
        """An operand of an intrinsic: where a buffer, or a row of one, lies."""
        return self.aligned(self.address(buffer), nbytes(buffer.dtype))

    def aligned(self, pointer: str, count: int) -> str:
        return f"ptr align {count} {pointer}"

    def move(self, target: str, source: str, count: int) -> None:
        """Copy bytes."""
        name, types = "llvm.memcpy.p0.p0.i64", "ptr, ptr, i64, i1"
        self.builder.shared.declare(name, f"declare void @{name}({types})")
        self.builder.effect(f"call void @{name}({target}, {source}, i64 {count}, i1 false)")

    def clear(self, target: str, count: int) -> None:
        """Fill bytes with zeros."""
        name, types = "llvm.memset.p0.i64", "ptr, i8, i64, i1"
        self.builder.shared.declare(name, f"declare void @{name}({types})")
        self.builder.effect(f"call void @{name}({target}, i8 0, i64 {count}, i1 false)")

    def trace(self) -> None:
        """The next entry of the trace, if there is one."""
        if self.is_traced:
            self.builder.effect(f"call void @pb.trace(ptr %rt, ptr %trace, i64 {self.calls})")
            self.calls += 1

    def address(self, buffer: Buffer, emit: Callable[[str], str] | None = None) -> str:
        """Where a buffer lies; those of scope arena need no declaration. A call computes what it needs: hundreds of
        addresses from the beginning on went to memory and came back, and LLVM took long to find out where."""
        emit = emit or self.builder.fresh
        if buffer in self.slots:
            return emit(f"load ptr, ptr {emit(f'getelementptr ptr, ptr %buffers, i64 {self.slots[buffer]}')}")
        if buffer in self.heaps:
            return self.heaps[buffer]
        if buffer.scope != "arena":
            raise InternalError(f"the buffer {buffer.name} is not a parameter of the host function")
        return emit(f"getelementptr i8, ptr %arena, i64 {buffer.offset}")

    def at_entry(self, text: str) -> str:
        name = self.builder.name("place")
        self.builder.entry.append(f"  {name} = {text}")
        return name

    def access(self, buffer, indices):
        if buffer not in self.memory:
            self.bind_buffer(buffer, self.address(buffer, self.at_entry))
        return super().access(buffer, indices)


class _Host:
    """Emits one host function. After its buffers' pointers, ``buffers`` holds pointers to the scalar parameters."""

    def __init__(
        self, func: PrimFunc, target: Target, shared: Globals, kernels: Mapping[str, PrimFunc],
        symbols: Mapping[str, str], linkage: str = "", callees: Mapping[str, tuple[PrimFunc, str]] | None = None,
    ) -> None:  # fmt: skip
        self.func, self.target, self.shared, self.kernels, self.symbols = func, target, shared, kernels, symbols
        self.linkage, self.callees = linkage, callees or {}

    def emit(self) -> str:
        symbol = _quoted(exported_symbol(self.func.name))
        if not (self.func.attrs.get(FLUSH_SUBNORMALS) and flushes(self.target.arch)):
            return self.emit_as(symbol, self.linkage)
        body = _quoted(f"host.{self.func.name}")
        # A function of its own that stays one: LLVM, which knows one mode alone, moves no arithmetic out of it.
        flushed = flushing(symbol, body, self.target.arch, self.shared, self.linkage)
        return self.emit_as(body, "internal ", " noinline") + flushed

    def emit_as(self, symbol: str, linkage: str = "", attributes: str = "") -> str:
        header = f"define {linkage}i32 @{symbol}(ptr %rt, ptr %buffers, ptr %arena, ptr %trace){attributes}"
        builder = FunctionBuilder(header, self.shared)
        emitter = _HostStatements(builder, self.target, self.kernels, self.symbols, self.func, self.callees)
        scalars = [p for p in self.func.params if not isinstance(p, Buffer)]
        for i, param in enumerate(scalars, len(self.func.buffers)):
            place = emitter.at_entry(f"load ptr, ptr {emitter.at_entry(f'getelementptr ptr, ptr %buffers, i64 {i}')}")
            value = emitter.at_entry(f"load {memory_type(param.dtype)}, ptr {place}")
            emitter.env[param] = _scalar_meaning(emitter, param, emitter.from_memory(value, param.dtype, 1).ref)
        if emitter.is_traced:
            self.shared.define("pb.trace", _TRACE)
        emitter.stmt(self.func.body)
        emitter.trace()
        emitter.leave("0")
        return builder.text()


def _own_heaps(func: PrimFunc) -> list[Buffer]:
    """The heaps that a host function names and does not get."""
    found = [b for n in walk(func.body) for b in _buffers_of(n) if b.scope == "heap"]
    return list(dict.fromkeys(found))


def _buffers_of(node: Node) -> tuple[Buffer, ...]:
    """The buffers that a statement of a host function names, heaps among them."""
    if isinstance(node, HostCall):
        return node.buffers
    return (node.heap,) if isinstance(node, (Box, Recur, Release)) else ()


def _laid_out(fields: Sequence[Buffer]) -> tuple[list[int], int]:
    """Where the buffers lie in a box, after the number of its kind, and its bytes. Large ones begin a line."""
    places, end = [], _GRAIN
    for buffer in fields:
        size = _piece_bytes(buffer)
        grain = LINE if size >= LINE else _GRAIN
        places.append(-(-end // grain) * grain)
        end = places[-1] + size
    return places, end


def _piece_bytes(param: Buffer) -> int:
    """The bytes of what a host function takes."""
    if not all(isinstance(size, int) for size in param.shape):
        raise InternalError(f"{param.name} cannot be a piece of a buffer: its size is not known")
    return math.prod(param.shape) * nbytes(param.dtype)  # type: ignore[arg-type]


_TRACE = f"""define internal void @pb.trace(ptr %rt, ptr %trace, i64 %index) nounwind noinline {{
  %off = icmp eq ptr %trace, null
  br i1 %off, label %done, label %on
on:
  %slot = getelementptr {RUNTIME}, ptr %rt, i32 0, i32 {_SLOTS["now_ns"]}
  %clock = load ptr, ptr %slot
  %now = call i64 %clock()
  %place = getelementptr i64, ptr %trace, i64 %index
  store i64 %now, ptr %place
  br label %done
done:
  ret void
}}
"""
