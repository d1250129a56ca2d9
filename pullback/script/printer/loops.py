"""Loop functions as script."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from pullback.script.printer.layout import Lines, indented
from pullback.script.printer.literals import attribute
from pullback.script.printer.names import Level, Names
from pullback.script.printer.scalars import ScalarPrinter
from pullback.script.printer.types import quoted, sequence
from pullback.tir.description import without_description
from pullback.tir.expr import Buffer, PrimExpr, Var
from pullback.tir.stmt import (
    Allocate,
    Await,
    Box,
    BufferStore,
    Check,
    Collective,
    For,
    HostCall,
    If,
    KernelCall,
    Let,
    PackedCall,
    Prefetch,
    PrimFunc,
    Recur,
    Release,
    Seq,
    Stmt,
    Stop,
    Unbox,
    While,
)


class LoopPrinter:
    """Prints one loop function, or a part of one."""

    def __init__(self, level: int = 0) -> None:
        self.names = Names()
        self.scalars = ScalarPrinter(self.names)
        self.level = level
        self.lines = Lines(level + 1)

    def function(self, function: PrimFunc, name: str, options: str) -> Lines:
        """``def name(…)`` with its decorator."""
        shape_sizes = [s for b in function.buffers for s in symbols(b.shape) if isinstance(s, Var)]
        for symbol in dict.fromkeys([*function.params, *shape_sizes]):
            self.names.bind(symbol)
        attrs = without_description(function.attrs)
        if attrs.get("private") is True:
            options = f"private=True{', ' if options else ''}{options}"
            del attrs["private"]
        lines = Lines(self.level)
        lines.add(f"@T.prim_func({options})" if options else "@T.prim_func")
        params = [f"{self.scalars.name(p)}: {self.annotation(p)}" for p in function.params]
        lines.add(f"def {name}({', '.join(params)}):", one_per_line=True)
        if attrs:
            self.lines.add(f"T.func_attr({attribute(attrs, self.scalars)})")
        self.free_symbols(function)
        self.block(function.body)
        lines.extend(self.lines)
        return lines

    def annotation(self, param: Buffer | Var) -> str:
        return f"T.{param.dtype}" if isinstance(param, Var) else f"T.Buffer({self.buffer_args(param, quote=True)})"

    def buffer_args(self, buffer: Buffer, quote: bool = False, default_scope: str = "global") -> str:
        sizes = [self.scalars.size(s) for s in buffer.shape]
        if quote:
            sizes = [t if isinstance(s, int) else quoted(t) for s, t in zip(buffer.shape, sizes, strict=True)]
        text = f'{sequence(sizes)}, "{buffer.dtype}"'
        if buffer.scope != default_scope:
            text += f', scope="{buffer.scope}"'
        return text + (f", offset={buffer.offset}" if buffer.offset else "")

    def free_symbols(self, function: PrimFunc) -> None:
        """Declare what the body uses but does not bind: symbolic sizes, and buffers in the arena."""
        bound = {id(s) for s in bound_symbols(function.body)} | {id(p) for p in function.params}
        free = [s for s in dict.fromkeys(symbols(function.body)) if id(s) not in bound]
        for var in [s for s in free if isinstance(s, Var)]:
            name = self.names.get(var) or self.names.bind(var)
            self.lines.add(f"{name} = T.{var.dtype}()")
        for buffer in [s for s in free if isinstance(s, Buffer)]:
            arena = buffer.scope == "arena"
            args = self.buffer_args(buffer, default_scope="arena" if arena else "global")
            self.lines.add(f"{self.names.bind(buffer)} = T.{'arena_buffer' if arena else 'Buffer'}({args})")

    # -- statements

    def block(self, stmt: Stmt) -> None:
        """The statements of one indented block, whose names end with it."""
        with self.names.scope([]) as level:
            rest: Stmt | None = stmt
            while rest is not None:
                rest = self.leading(rest, level)

    def leading(self, stmt: Stmt, level: Level) -> Stmt | None:
        """Print what ``stmt`` begins with; the rest goes on in the same block."""
        if isinstance(stmt, Let):
            value = self.scalars.expr(stmt.value)
            self.lines.add(f"{level.bind(stmt.var)}: T.{stmt.var.dtype} = {value}")
            return stmt.body
        if isinstance(stmt, Allocate):
            args = self.buffer_args(stmt.buffer, default_scope="local")
            if stmt.buffer.offset:
                args = f"{self.buffer_args(stmt.buffer, default_scope='')}"
            self.lines.add(f"{level.bind(stmt.buffer)} = T.alloc_buffer({args})")
            return stmt.body
        if not isinstance(stmt, Seq):
            self.simple(stmt)
            return None
        if len(stmt.stmts) < 2:
            self.lines.add("pass")
        for inner in stmt.stmts[:-1]:
            self.inner(inner)
        last = stmt.stmts[-1] if stmt.stmts else None
        if isinstance(last, Seq):
            self.inner(last)
            return None
        return last

    def inner(self, stmt: Stmt) -> None:
        """A statement that others follow: one that binds names, or a sequence, gets a scope of its own."""
        if isinstance(stmt, Let | Allocate | Seq):
            self.lines.add("with T.scope():")
            with indented(self.lines):
                self.block(stmt)
        else:
            self.simple(stmt)

    def simple(self, stmt: Stmt) -> None:
        if isinstance(stmt, BufferStore):
            place = f"{self.scalars.name(stmt.buffer)}[{self.scalars.index(stmt.indices)}]"
            self.lines.add(f"{place} = {self.scalars.expr(stmt.value)}")
        elif isinstance(stmt, Prefetch):
            place = f"{self.scalars.name(stmt.buffer)}[{self.scalars.index(stmt.indices)}]"
            self.lines.add(f"T.prefetch({place}, {quoted(stmt.kind)})")
        elif isinstance(stmt, For):
            self.loop(stmt)
        elif isinstance(stmt, If):
            self.condition(stmt, "if")
        elif isinstance(stmt, KernelCall):
            buffers = "".join(f", {self.scalars.name(b)}" for b in stmt.buffers)
            self.lines.add(f"T.kernel({quoted(stmt.name)}{buffers})")
        elif isinstance(stmt, PackedCall):
            parts = [f"[{', '.join(map(self.scalars.name, part))}]" for part in (stmt.inputs, stmt.outputs)]
            self.lines.add(f"T.packed({quoted(stmt.name)}, {', '.join(parts)}, {self.scalars.name(stmt.flag)})")
        elif isinstance(stmt, Collective):
            self.lines.add(self.collective(stmt))
        elif isinstance(stmt, Await):
            parts = [
                f"[{', '.join(map(self.scalars.name, part))}]" for part in (stmt.given, stmt.received, stmt.targets)
            ]
            self.lines.add(f"T.wait({self.scalars.name(stmt.ticket)}, {', '.join(parts)})")
        elif isinstance(stmt, HostCall):
            self.host_call(stmt)
        elif isinstance(stmt, While):
            self.lines.add(f"while {self.scalars.expr(stmt.condition)}:")
            with indented(self.lines):
                self.block(stmt.body)
        elif isinstance(stmt, Box):
            names = self.of_buffers(stmt.handle, *stmt.fields)
            self.lines.add(f"T.box({names}, heap={self.scalars.name(stmt.heap)}, {_numbers(stmt)})")
        elif isinstance(stmt, Unbox):
            self.lines.add(f"T.unbox({self.of_buffers(stmt.handle, *stmt.fields)}, {_numbers(stmt)})")
        elif isinstance(stmt, Recur):
            names = f"{quoted(stmt.name)}, {self.of_buffers(*stmt.buffers)}"
            numbers = f"nbytes={stmt.nbytes}, most={stmt.most}, too_deep={stmt.too_deep}, code={stmt.code}"
            self.lines.add(f"T.recur({names}, heap={self.scalars.name(stmt.heap)}, {numbers})")
        elif isinstance(stmt, Release):
            self.lines.add(f"T.release({self.of_buffers(stmt.heap, stmt.mark)})")
        elif isinstance(stmt, Stop):
            self.lines.add(f"T.stop({stmt.code})")
        elif isinstance(stmt, Check):
            self.lines.add(f"T.check({self.scalars.name(stmt.buffer)}, {stmt.code})")
        else:
            self.lines.add(f'I.opaque("{type(stmt).__name__}")')

    def of_buffers(self, *buffers: Buffer) -> str:
        return ", ".join(map(self.scalars.name, buffers))

    def collective(self, stmt: Collective) -> str:
        given, received = (f"[{', '.join(map(self.scalars.name, part))}]" for part in (stmt.given, stmt.received))
        ticket = "None" if stmt.ticket is None else self.scalars.name(stmt.ticket)
        defaults = {"reduction": "sum", "root": 0, "shards": 1, "ranks": 0}
        chosen = [f"{k}={getattr(stmt, k)!r}" for k, v in defaults.items() if getattr(stmt, k) != v]
        items = [quoted(stmt.kind), given, received, ticket, str(list(stmt.elements)), *chosen]
        return f"T.collective({', '.join(items)})"

    def host_call(self, stmt: HostCall) -> None:
        words = [quoted(stmt.name)]
        for k, buffer in enumerate(stmt.buffers):
            name = self.scalars.name(buffer)
            words.append(f"T.piece({name}, {self.scalars.expr(stmt.rows[k])})" if stmt.rows else name)
        if stmt.arena is not None:
            words.append(f"arena={self.scalars.name(stmt.arena)}")
        self.lines.add(f"T.host({', '.join(words)})")

    def loop(self, stmt: For) -> None:
        loops = _nest(stmt)
        extents = [self.scalars.expr(f.extent) for f in loops]
        with self.names.scope([f.var for f in loops]):
            targets = ", ".join(self.scalars.name(f.var) for f in loops)
            self.lines.add(f"for {targets} in {_range(loops, extents)}:")
            with indented(self.lines):
                self.block(loops[-1].body)

    def condition(self, stmt: If, word: str) -> None:
        self.lines.add(f"{word} {self.scalars.expr(stmt.condition)}:")
        with indented(self.lines):
            self.block(stmt.then)
        if isinstance(stmt.otherwise, If):
            self.condition(stmt.otherwise, "elif")
        elif stmt.otherwise is not None:
            self.lines.add("else:")
            with indented(self.lines):
                self.block(stmt.otherwise)


def _numbers(stmt: Box | Unbox) -> str:
    return f"kind={stmt.kind}, code={stmt.code}"


def _nest(loop: For) -> list[For]:
    """The loops that one ``T.grid`` can stand for: serial, perfectly nested, extents independent of one another."""
    loops = [loop]
    while _griddable(loop) and isinstance(loops[-1].body, For) and _griddable(loops[-1].body):
        inner, outer = loops[-1].body, {id(f.var) for f in loops}
        if id(inner.var) in outer or any(id(s) in outer for s in symbols(inner.extent)):
            break
        loops.append(inner)
    return loops


def _griddable(loop: For) -> bool:
    return loop.kind == "serial" and loop.var.dtype == loop.extent.dtype


def _range(loops: list[For], extents: list[str]) -> str:
    loop = loops[0]
    if len(loops) > 1:
        return f"T.grid({', '.join(extents)})"
    if loop.kind == "serial" and loop.var.dtype == loop.extent.dtype == "int64":
        return f"range({extents[0]})"
    dtype = f', dtype="{loop.var.dtype}"' if loop.var.dtype != loop.extent.dtype else ""
    return f"T.{loop.kind}({extents[0]}{dtype})"


def symbols(part: Any) -> Iterator[Var | Buffer]:
    """The symbols that are used in a part, with repetitions: also those in the shapes of buffers."""
    stack = [part]
    while stack:
        node = stack.pop()
        if isinstance(node, Var):
            yield node
        elif isinstance(node, Buffer):
            yield node
            stack.append(node.shape)
        elif isinstance(node, tuple):
            stack.extend(reversed(node))
        elif isinstance(node, PrimExpr | Stmt):
            stack.extend(reversed([getattr(node, f.name) for f in fields(node) if f.compare]))


def bound_symbols(stmt: Stmt) -> Iterator[Var | Buffer]:
    """The symbols that statements bind."""
    stack: list[Any] = [stmt]
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack.extend(node)
        elif isinstance(node, Stmt):
            if node.binder:
                yield getattr(node, node.binder)
            stack.extend(getattr(node, f.name) for f in fields(node) if f.compare)
