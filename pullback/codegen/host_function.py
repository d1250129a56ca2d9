"""A host function as LLVM IR: the exported ``i32 name(ptr rt, ptr buffers, ptr arena, ptr trace)``.

Host functions call others of the module in the same way, without a trace; those with the attribute ``inner`` are not
exported. A heap of a host function's own lies on its stack, and is given back before each return.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from pullback.codegen.builder import FunctionBuilder, Globals
from pullback.codegen.float_mode import flushes, flushing
from pullback.codegen.memory import Access
from pullback.codegen.statements import Statements, stored_buffers
from pullback.codegen.symbols import RUNTIME, SLOTS, exported_symbol, quoted, scalar_meaning
from pullback.codegen.values import memory_type
from pullback.ir.errors import InternalError
from pullback.ir.node import Node
from pullback.target import Target
from pullback.tir.caches import LINE
from pullback.tir.expr import Buffer, IntImm, PrimExpr, nbytes
from pullback.tir.static import is_static, static
from pullback.tir.stmt import (
    DEPTH,
    FLUSH_SUBNORMALS,
    LEVELS,
    Box,
    Check,
    HostCall,
    KernelCall,
    PrimFunc,
    Recur,
    Release,
    Stop,
    Unbox,
    While,
)
from pullback.tir.visitor import walk

_WITH_HEAP = "{ i64, ptr, ptr, ptr, ptr, ptr }"  # and grow, shrink
_HEAP_SLOTS = {"grow": 4, "shrink": 5}
_POISONS = 3  # the number of the heap's word that says so
_GRAIN = 8  # bytes to which small values in boxes are aligned; boxes are to lines


def is_inner(host: PrimFunc) -> bool:
    """Whether only other host functions call it."""
    return bool(host.attrs.get("inner"))


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
        self.most_pointers = max((len(n.buffers) for n in calls), default=1)
        self.place: str | None = None
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
        self.builder.effect(f"call void @{quoted(self.symbols[node.name])}({', '.join(operands)})")
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
        status = self.builder.fresh(f"call i32 @{quoted(symbol)}({arguments})")
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
        (words,) = static(buffer.shape)
        place = self.at_entry(f"alloca [{words} x i64], align {LINE}")
        for k in range(words):
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

    def access(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> Access:
        if buffer not in self.memory:
            self.bind_buffer(buffer, self.address(buffer, self.at_entry))
        return super().access(buffer, indices)


class HostFunction:
    """Emits one host function. After its buffers' pointers, ``buffers`` holds pointers to the scalar parameters."""

    def __init__(
        self, func: PrimFunc, target: Target, shared: Globals, kernels: Mapping[str, PrimFunc],
        symbols: Mapping[str, str], linkage: str = "", callees: Mapping[str, tuple[PrimFunc, str]] | None = None,
    ) -> None:  # fmt: skip
        self.func, self.target, self.shared, self.kernels, self.symbols = func, target, shared, kernels, symbols
        self.linkage, self.callees = linkage, callees or {}

    def emit(self) -> str:
        symbol = quoted(exported_symbol(self.func.name))
        if not (self.func.attrs.get(FLUSH_SUBNORMALS) and flushes(self.target.arch)):
            return self.emit_as(symbol, self.linkage)
        body = quoted(f"host.{self.func.name}")
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
            emitter.env[param] = scalar_meaning(emitter, param, emitter.from_memory(value, param.dtype, 1).ref)
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
    if not is_static(param.shape):
        raise InternalError(f"{param.name} cannot be a piece of a buffer: its size is not known")
    return math.prod(param.shape) * nbytes(param.dtype)


_TRACE = f"""define internal void @pb.trace(ptr %rt, ptr %trace, i64 %index) nounwind noinline {{
  %off = icmp eq ptr %trace, null
  br i1 %off, label %done, label %on
on:
  %slot = getelementptr {RUNTIME}, ptr %rt, i32 0, i32 {SLOTS["now_ns"]}
  %clock = load ptr, ptr %slot
  %now = call i64 %clock()
  %place = getelementptr i64, ptr %trace, i64 %index
  store i64 %now, ptr %place
  br label %done
done:
  ret void
}}
"""
