"""ONNX files as bytes: the contents of initialisers replaced, and every other byte left as it is.

A message of protobuf is a sequence of fields, each a key, which says number and kind, and a value. Parsing and writing
a model anew may order fields otherwise, so files are rewritten field by field.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from pullback.ir.errors import UserError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MODEL_GRAPH, GRAPH_INITIALIZER, TENSOR_NAME = 7, 5, 8
RAW_DATA, FLOAT_DATA, INT32_DATA, DOUBLE_DATA = 9, 4, 5, 10
_DATA = (RAW_DATA, FLOAT_DATA, INT32_DATA, DOUBLE_DATA)
_FIXED_SIZES = {FIXED64: 8, FIXED32: 4}


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    """A number, and where what follows it begins."""
    value = shift = 0
    while True:
        if place >= len(data) or shift > 63:
            raise UserError("the file ends within a number, or is no file of protobuf")
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7


def encoded(value: int) -> bytes:
    """A number as protobuf has it."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def fields(data: memoryview) -> Iterator[tuple[int, int, int, int, int]]:
    """Number, kind, begin of the key, begin of the contents, and end of each field."""
    place = 0
    while place < len(data):
        start = place
        key, place = _varint(data, place)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            begin = place
            _, place = _varint(data, place)
        elif kind == BYTES:
            size, begin = _varint(data, place)
            place = begin + size
        elif kind in _FIXED_SIZES:
            begin, place = place, place + _FIXED_SIZES[kind]
        else:
            raise UserError(f"a field of kind {kind}: this is no file of protobuf")
        if place > len(data):
            raise UserError("the file ends within a field")
        yield number, kind, start, begin, place


def _replaced(data: memoryview, wanted: int, change: Callable[[memoryview], bytes | None]) -> bytes:
    """A message whose fields of a number, messages themselves, are changed; None leaves one as it is."""
    parts: list[bytes | memoryview] = []
    for number, kind, start, begin, end in fields(data):
        new = change(data[begin:end]) if number == wanted and kind == BYTES else None
        if new is None:
            parts.append(data[start:end])
        else:
            parts += [encoded(number << 3 | BYTES), encoded(len(new)), new]
    return b"".join(parts)


def with_initialisers(data: bytes, arrays: Mapping[str, np.ndarray]) -> bytes:
    """The file of a model whose initialisers of these names have other values, of the same types."""

    def tensor(message: memoryview) -> bytes | None:
        name = next((bytes(message[b:e]).decode() for n, k, _, b, e in fields(message) if n == TENSOR_NAME), "")
        return _with_values(message, arrays[name]) if name in arrays else None

    return _replaced(memoryview(data), MODEL_GRAPH, lambda g: _replaced(g, GRAPH_INITIALIZER, tensor))


def _with_values(message: memoryview, array: np.ndarray) -> bytes:
    """A TensorProto with other values, stored as it stored the old ones."""
    parts: list[bytes | memoryview] = []
    is_written = False
    for number, _, start, _, end in fields(message):
        if number not in _DATA:
            parts.append(message[start:end])
        elif not is_written:
            is_written = True
            contents = _contents(number, array)
            parts += [encoded(number << 3 | BYTES), encoded(len(contents)), contents]
    if not is_written and array.size:
        raise UserError("an initialiser has no values in the file")
    return b"".join(parts)


def _contents(number: int, array: np.ndarray) -> bytes:
    if number == RAW_DATA:
        return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    flat = array.reshape(-1)
    if number == FLOAT_DATA:
        return struct.pack(f"<{flat.size}f", *flat.tolist())
    if number == DOUBLE_DATA:
        return struct.pack(f"<{flat.size}d", *flat.tolist())
    return b"".join(encoded(bits) for bits in flat.view(np.uint16).tolist())  # of half-precision numbers
