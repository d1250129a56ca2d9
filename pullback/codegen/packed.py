"""Calls of registered functions: ``pb_call_packed(name, arrays, inputs, outputs)``, with descriptions of the arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pullback.codegen.builder import Globals
from pullback.ir.errors import UserError
from pullback.runtime.packed import SYMBOL
from pullback.tir.static import is_static
from pullback.tir.stmt import PackedCall

if TYPE_CHECKING:
    from pullback.codegen.statements import Statements

ARRAY = "{ ptr, ptr, i64, ptr }"  # struct pb_array: data, shape, ndim, dtype


def packed_call(emitter: Statements, node: PackedCall) -> None:
    """The call; the flag is set where it returns 0."""
    builder, shared = emitter.builder, emitter.builder.shared
    shared.declare(SYMBOL, f"declare i32 @{SYMBOL}(ptr, ptr, i32, i32)")
    buffers = (*node.inputs, *node.outputs)
    arrays = builder.alloca(max(1, len(buffers)), ARRAY)
    for k, buffer in enumerate(buffers):
        if not is_static(buffer.shape):
            hint = "the sizes of what it takes and gives are known when it is compiled"
            raise UserError(f"{node.name}: the shape of {buffer.name} is not known", span=node.span, hint=hint)
        fields = (
            emitter.memory[buffer].pointer,
            constant_integers(shared, buffer.shape),
            len(buffer.shape),
            _text(shared, buffer.dtype),
        )
        for number, (kind, value) in enumerate(zip(("ptr", "ptr", "i64", "ptr"), fields, strict=True)):
            place = builder.fresh(f"getelementptr {ARRAY}, ptr {arrays}, i64 {k}, i32 {number}")
            builder.effect(f"store {kind} {value}, ptr {place}")
    name = _text(shared, node.name)
    arguments = f"ptr {name}, ptr {arrays}, i32 {len(node.inputs)}, i32 {len(node.outputs)}"
    status = builder.fresh(f"call i32 @{SYMBOL}({arguments})")
    done = builder.fresh(f"zext i1 {builder.fresh(f'icmp eq i32 {status}, 0')} to i8")
    builder.effect(f"store i8 {done}, ptr {emitter.memory[node.flag].pointer}")


def constant_integers(shared: Globals, values: tuple[int, ...]) -> str:
    """An array of int64 constants: its address."""
    name = "shape." + "x".join(map(str, values))
    listed = ", ".join(f"i64 {value}" for value in values or (0,))
    shared.define(name, f"@{name} = private constant [{max(1, len(values))} x i64] [{listed}]")
    return f"@{name}"


def _text(shared: Globals, text: str) -> str:
    data = text.encode()
    name = "text." + data.hex()
    escaped = "".join(f"\\{byte:02X}" for byte in (*data, 0))
    shared.define(name, f'@{name} = private constant [{len(data) + 1} x i8] c"{escaped}"')
    return f"@{name}"
