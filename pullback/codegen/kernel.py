"""A kernel as LLVM IR: ``void name(ptr rt, ptr buffer…, scalar…)``, and each of its parallel loops a task that the
runtime runs."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pullback.codegen.builder import FunctionBuilder, Globals
from pullback.codegen.own_copies import OwnCopies
from pullback.codegen.poly import Poly
from pullback.codegen.statements import Statements, stored_buffers
from pullback.codegen.symbols import RUNTIME, SLOTS, quoted, scalar_meaning
from pullback.codegen.values import memory_type, register_type
from pullback.target import Target
from pullback.tir.expr import Buffer, BufferLoad, Var
from pullback.tir.ranges import LARGEST_SIZE
from pullback.tir.stmt import (
    BufferStore,
    For,
    Prefetch,
    PrimFunc,
    Stmt,
    seq,
)
from pullback.tir.visitor import walk

_STREAMS = ("x86_64", "amd64")  # has stores past the caches, and must be told to


@dataclass(frozen=True)
class _Capture:
    """What a parallel loop's body uses of its surroundings: an operand of the kernel, or a buffer of each thread, and
    its type."""

    operand: str | Buffer
    type: str


class Kernel:
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
                emitter.env[param] = scalar_meaning(emitter, param, f"%s{i}")
        for i, param in enumerate(self.func.params):
            if isinstance(param, Buffer):
                emitter.bind_buffer(param, f"%b{i}")
        emitter.stmt(self.func.body)
        emitter.finish()
        builder.header = f"define {self.linkage}void @{quoted(self.name)}({', '.join(params)})"
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
        slot = builder.pure(f"getelementptr {RUNTIME}, ptr %rt, i32 0, i32 {SLOTS[function]}")
        run = builder.pure(f"load ptr, ptr {slot}", 0)
        builder.effect(f"call void {run}(ptr %rt, ptr @{quoted(task)}, ptr {closure}, i64 {emitter.scalar(extent)})")

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
            inner.env[var] = scalar_meaning(inner, var, parameter, bounds)
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
        builder.header = f"define internal void @{quoted(name)}({', '.join(params)}) noinline"
        self.tasks.append(builder.text())
        return captures


def _pointer_parameter(name: str, buffer: Buffer, written: set[Buffer]) -> str:
    """Parameters never overlap, so a buffer that is only read does not change."""
    return f"ptr noalias {'' if buffer in written else 'readonly '}{name}"


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
    builder = FunctionBuilder(f"define internal void @{quoted(name)}(ptr %closure, i64 %begin, i64 %end)", Globals())
    given = _loaded(builder, captures)
    operands = [*(given[c] for c in captures), "i64 %begin", "i64 %end"]
    builder.effect(f"call void @{quoted(name + '.body')}({', '.join(operands)})")
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
    builder = FunctionBuilder(f"define internal void @{quoted(name)}(ptr %closure, ptr %share)", Globals())
    given = _loaded(builder, fields)
    for buffer, (count, kind) in own.items():
        given[_Capture(buffer, "ptr")] = f"ptr {builder.alloca(count, kind)}"
    spot = builder.alloca(2, "i64")
    following = builder.fresh("load ptr, ptr %share")
    builder.effect(f"call void @{quoted(name + '.fill')}({', '.join(given[c] for c in filled)})")
    head, some, none = (builder.label(stem) for stem in ("head", "some", "none"))
    builder.branch(head)
    builder.start(head)
    answer = builder.fresh(f"call i32 {following}(ptr %share, ptr {spot})")
    builder.branch_if(builder.fresh(f"icmp ne i32 {answer}, 0"), some, none)
    builder.start(some)
    begin = builder.fresh(f"load i64, ptr {spot}")
    end = builder.fresh(f"load i64, ptr {builder.fresh(f'getelementptr i64, ptr {spot}, i32 1')}")
    operands = [*(given[c] for c in captures), f"i64 {begin}", f"i64 {end}"]
    builder.effect(f"call void @{quoted(name + '.body')}({', '.join(operands)})")
    builder.branch(head)
    builder.start(none)
    builder.effect("ret void")
    return builder.text()
