"""Collectives: a descriptor ``pb_collective`` on the stack, and calls of the runtime table's ``start`` and ``wait``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pullback.codegen.packed import constant_integers
from pullback.runtime.collectives import KINDS, REDUCTIONS
from pullback.runtime.dtype import NUMPY_DTYPES
from pullback.tir.expr import Buffer, nbytes
from pullback.tir.static import static
from pullback.tir.stmt import Await, Collective

if TYPE_CHECKING:
    from pullback.codegen.statements import Statements

TABLE = "{ i64, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr }"  # struct pb_runtime, whole
DESCRIPTOR = "{ i32, i32, i32, i32, i32, i32, i32, ptr, ptr, ptr }"  # struct pb_collective
_SLOTS = {"start": 7, "wait": 8}
_DTYPES = {name: code for code, name in enumerate(NUMPY_DTYPES)}  # enum pb_dtype of rt.h


def start_collective(emitter: Statements, node: Collective) -> None:
    """Start it; without a ticket, wait for it."""
    builder = emitter.builder
    dtype = _DTYPES[(node.received or node.given)[0].dtype]
    numbers = (
        KINDS.index(node.kind), REDUCTIONS.index(node.reduction), dtype, node.root, node.shards, len(node.received),
        node.ranks,
    )  # fmt: skip
    fields = [
        *(("i32", number) for number in numbers),
        ("ptr", constant_integers(builder.shared, node.elements)),
        ("ptr", _pointers(emitter, node.given)),
        ("ptr", _pointers(emitter, node.received)),
    ]
    descriptor = builder.alloca(1, DESCRIPTOR)
    for k, (kind, value) in enumerate(fields):
        place = builder.fresh(f"getelementptr {DESCRIPTOR}, ptr {descriptor}, i64 0, i32 {k}")
        builder.effect(f"store {kind} {value}, ptr {place}")
    ticket = builder.fresh(f"call i64 {_function(builder, 'start')}(ptr %rt, ptr {descriptor})")
    if node.ticket is None:
        _wait(builder, ticket)
    else:
        builder.effect(f"store i64 {ticket}, ptr {emitter.memory[node.ticket].pointer}")


def await_collective(emitter: Statements, node: Await) -> None:
    """Wait for it, then copy what lies elsewhere."""
    builder = emitter.builder
    ticket = builder.fresh(f"load i64, ptr {emitter.memory[node.ticket].pointer}")
    _wait(builder, ticket)
    for source, target in zip(node.received, node.targets, strict=True):
        if source is not target and _bytes(source):
            builder.shared.declare("memcpy", "declare ptr @memcpy(ptr, ptr, i64)")
            here, there = (emitter.memory[b].pointer for b in (target, source))
            builder.effect(f"call ptr @memcpy(ptr {here}, ptr {there}, i64 {_bytes(source)})")


def _wait(builder: Any, ticket: str) -> None:
    builder.effect(f"call void {_function(builder, 'wait')}(ptr %rt, i64 {ticket})")


def _function(builder: Any, name: str) -> str:
    slot = builder.fresh(f"getelementptr {TABLE}, ptr %rt, i32 0, i32 {_SLOTS[name]}")
    return builder.fresh(f"load ptr, ptr {slot}")


def _pointers(emitter: Statements, buffers: Sequence[Buffer]) -> str:
    builder = emitter.builder
    array = builder.alloca(max(1, len(buffers)), "ptr")
    for k, buffer in enumerate(buffers):
        place = builder.fresh(f"getelementptr ptr, ptr {array}, i64 {k}")
        builder.effect(f"store ptr {emitter.memory[buffer].pointer}, ptr {place}")
    return array


def _bytes(buffer: Buffer) -> int:
    return math.prod(static(buffer.shape)) * nbytes(buffer.dtype)
