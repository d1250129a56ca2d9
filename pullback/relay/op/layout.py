"""Layouts: which axis is where, and which are cut into blocks (``NCHW4c``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.ir.errors import ShapeError
from pullback.relax.op.namespace import ops
from pullback.relay.attrs import Attrs
from pullback.relay.op.registry import OpPattern, define
from pullback.relay.op.rules import product, quotient, rank_of, shape_of
from pullback.relay.ty import TensorType, Type


def letters(layout: str) -> list[tuple[str, int]]:
    """``NCHW4c`` as axes and, of those that are parts, their sizes: [("N", 0), …, ("c", 4)]."""
    found: list[tuple[str, int]] = []
    digits = ""
    for letter in layout:
        if letter.isdigit():
            digits += letter
            continue
        if letter.islower() != bool(digits):
            raise ShapeError(f"layout {layout!r}: parts of an axis are written with their size, as in NCHW4c")
        found.append((letter, int(digits or 0)))
        digits = ""
    names = [letter for letter, _ in found]
    if digits or len(set(names)) != len(names) or any(n.islower() and n.upper() not in names for n in names):
        raise ShapeError(f"{layout!r} is no layout", hint="such as NCHW, or NCHW4c")
    return found


def sizes_of(layout: str, shape: Sequence[Any]) -> dict[str, Any]:
    """The sizes of whole axes, by their letters, of a tensor of the layout."""
    names = [name for name, _ in letters(layout)]
    if len(names) != len(shape):
        raise ShapeError(f"a tensor of the layout {layout} has {len(names)} axes, not {len(shape)}")
    found: dict[str, Any] = {}
    for name, size in zip(names, shape, strict=True):
        found[name.upper()] = product([found.get(name.upper(), 1), size])
    return found


def shape_in(layout: str, sizes: Mapping[str, Any]) -> tuple[Any, ...]:
    """The shape of a tensor of the layout whose whole axes have these sizes."""
    blocks = {name.upper(): size for name, size in letters(layout) if size}
    return tuple(size or quotient(sizes[name], blocks.get(name, 1)) for name, size in letters(layout))


def _transformed(types: list[Type], attrs: Attrs) -> Type | None:
    x = types[0]
    if not isinstance(x, TensorType) or x.is_concrete:
        return None
    return TensorType(shape_in(attrs["dst_layout"], sizes_of(attrs["src_layout"], x.shape)), x.dtype)


def layout_transform(x: Any, *, src_layout: str, dst_layout: str) -> Any:
    """``x``, whose axes are ``src_layout``, in ``dst_layout``."""
    source, target = letters(src_layout), letters(dst_layout)
    if len(source) != rank_of(x):
        raise ShapeError(f"layout_transform: data has {rank_of(x)} axes, {src_layout} {len(source)}")
    if {n.upper() for n, _ in source} != {n.upper() for n, _ in target}:
        raise ShapeError(f"layout_transform: {src_layout} and {dst_layout} do not have the same axes")
    names, sizes = [n for n, _ in source], list(shape_of(x))
    for part in [n for n in names if n.islower()]:  # parts go to their axes
        x, names, sizes = _merged(x, names, sizes, part)
    for part, size in [(n, s) for n, s in target if n.islower()]:
        at = names.index(part.upper())
        if isinstance(sizes[at], int) and sizes[at] % size:
            raise ShapeError(f"layout_transform: {part.upper()} has {sizes[at]} elements, no multiple of {size}")
        sizes[at : at + 1] = [sizes[at] // size, size]
        names[at : at + 1] = [part.upper(), part]
        x = ops.reshape(x, tuple(sizes))
    return ops.permute_dims(x, tuple(names.index(n) for n, _ in target))


def _merged(x: Any, names: list[str], sizes: list[Any], part: str) -> tuple[Any, list[str], list[Any]]:
    order = [n for n in names if n != part]
    order.insert(order.index(part.upper()) + 1, part)
    x = ops.permute_dims(x, tuple(names.index(n) for n in order))
    sizes = [sizes[names.index(n)] for n in order]
    at = order.index(part.upper())
    sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
    del order[at + 1]
    return ops.reshape(x, tuple(sizes)), order, sizes


define(
    "layout_transform",
    "data | src_layout, dst_layout",
    layout_transform,
    relation=_transformed,
    shown=("src_layout", "dst_layout"),
    doc="data, whose axes are src_layout, in dst_layout: NCHW → NHWC, or NCHW → NCHW4c with a part of an axis.",
    pattern=OpPattern.INJECTIVE,
)
