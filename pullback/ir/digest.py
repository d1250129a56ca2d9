"""Digests and hashes of structure, which agree with ``structural_equal``."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from pullback.ir.depth import deep
from pullback.ir.node import Closed, Node, Symbol, as_array, structural_fields
from pullback.ir.typed import cache


def structural_hash(node: Any, map_free_vars: bool = True) -> int:
    """A hash that agrees with :func:`structural_equal`; the same from run to run (blake2b, 64 bits). Symbols that
    nothing binds count by their place, whatever ``map_free_vars`` says: what is equal has one hash either way.

    Args:
        node: a node, a module, or a list, tuple or mapping of them.
        map_free_vars: without effect.

    Returns:
        an int of 64 bits, at least 0.

    Examples:
        >>> from pullback.ir import structural_hash
        >>> n, m = relax.Var("n", R.Tensor((2,), "float32")), relax.Var("m", R.Tensor((2,), "float32"))
        >>> structural_hash(R.exp(n)) == structural_hash(R.exp(m))
        True
    """
    return int.from_bytes(structural_digest(node)[:8], "little")


_PLAIN = (int, str, float, bool, type(None))  # most of what a structure ends in
_FEW_BYTES = 256  # of an array that is no more than a few elements


class _Kind(Enum):
    CLOSED = auto()
    NODE = auto()
    MAPPING = auto()
    SEQUENCE = auto()
    OTHER = auto()


@cache
def _kind(type_: type) -> _Kind:
    if issubclass(type_, Closed):
        return _Kind.CLOSED
    if issubclass(type_, Node) or hasattr(type_, "structural_items"):
        return _Kind.NODE
    if issubclass(type_, Mapping):
        return _Kind.MAPPING
    return _Kind.SEQUENCE if issubclass(type_, tuple | list) else _Kind.OTHER


def _is_word(value: Any) -> bool:
    """Whether it is a string, nothing, or sizes: equal values are written alike."""
    type_ = type(value)
    return type_ is str or value is None or (type_ is tuple and all(type(size) is int for size in value))


_name_of = functools.cache(str)  # of a NumPy type, which writes its name slowly


@cache
def _fields_of_digest(type_: type) -> tuple[str, ...] | None:
    """The fields in which a node's digest descends; None when the node itself says what it is made of."""
    return None if hasattr(type_, "structural_items") else structural_fields(type_)


@deep
def structural_digest(node: Any) -> bytes:
    """A 32-byte digest of the structure: equal for structurally equal nodes, stable between processes.

    Args:
        node: a node, a module, or a list, tuple or mapping of them.

    Returns:
        the digest (BLAKE2b).
    """
    digest = hashlib.blake2b(digest_size=32)
    parts: list[bytes] = []  # not yet in the digest: most are a few bytes
    add = parts.append
    numbers: dict[int, int] = {}
    words: dict[tuple, bytes] = {}  # of nodes without symbols, such as the types of most tensors

    def visit(x: Any) -> None:
        type_ = type(x)
        if type_ in _PLAIN:
            add(repr(x).encode() + b";")
            return
        kind = _kind(type_)
        if kind is _Kind.NODE:
            if isinstance(x, Symbol) or getattr(x, "shared", False):
                if id(x) in numbers:
                    add(b"s%d;" % numbers[id(x)])
                    return
                numbers[id(x)] = next(fresh)
                add(b"S")
            visit_node(x, type_)
        elif kind is _Kind.SEQUENCE:
            add(b"[")
            for value in x:
                visit(value)
            add(b"]")
        elif kind is _Kind.MAPPING:
            add(b"{")
            for key in sorted(x, key=str):
                add(repr(key).encode() + b":")
                visit(x[key])
            add(b"}")
        elif kind is _Kind.CLOSED:
            add(b"C" + structural_digest(x.node))
        elif (array := as_array(x)) is not None:
            add(f"A{type_.__name__}{_name_of(array.dtype)}{array.shape}".encode())
            if array.nbytes <= _FEW_BYTES:
                add(array.tobytes())
                return
            digest.update(b"".join(parts))
            digest.update(array.tobytes())
            parts.clear()
        else:
            add(f"{type_.__name__}={x!r};".encode())

    def visit_node(x: Any, type_: type) -> None:
        names = _fields_of_digest(type_)
        values = [v for _, v in x.structural_items()] if names is None else [getattr(x, n) for n in names]
        if all(map(_is_word, values)):
            key = (type_, *values)
            if key not in words:
                words[key] = f"N{type_.__name__}{values}".encode()
            add(words[key])
            return
        add(b"N" + type_.__name__.encode() + b"(")
        binder = getattr(x, "binder", None)
        bound = id(getattr(x, binder)) if binder else 0  # no object's id
        outer = numbers.pop(bound, None)
        for value in values:
            visit(value)
        if binder:
            numbers.pop(bound, None)
            if outer is not None:
                numbers[bound] = outer
        add(b")")

    fresh = itertools.count()
    visit(node)
    digest.update(b"".join(parts))
    return digest.digest()
