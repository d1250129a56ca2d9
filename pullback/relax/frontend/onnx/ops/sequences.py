"""Sequences of tensors whose length is known at import: what a model makes and takes apart by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, UserError
from pullback.relax import op
from pullback.relax.frontend.onnx.known import Items, Known, ints, number, static
from pullback.relax.frontend.onnx.ops.shapes import axis_of, rank_of, shape_of
from pullback.relax.frontend.onnx.table import ONNX


@ONNX.register("SequenceConstruct")
def sequence_construct(*items: Any) -> Items:
    return Items(items)


@ONNX.register("SequenceEmpty")
def sequence_empty(*, dtype: int = 1) -> Items:
    return Items()


def _place(position: Any, count: int, what: str) -> int:
    """A position in a sequence, counted from its front."""
    place = int(number(position))
    if not -count <= place < count:
        raise ArgumentError(f"the {what} {place} lies outside of a sequence of {count}")
    return place % count


@ONNX.register("SequenceAt")
def sequence_at(items: Items, position: Any) -> Any:
    return items[_place(position, len(items), "position")]


@ONNX.register("SequenceInsert")
def sequence_insert(items: Items, tensor: Any, position: Any = None) -> Items:
    place = len(items) if position is None else _place(position, len(items) + 1, "position")
    if position is not None and int(number(position)) < 0:
        place = int(number(position)) + len(items)
    return Items((*items[:place], tensor, *items[place:]))


@ONNX.register("SequenceErase")
def sequence_erase(items: Items, position: Any = None) -> Items:
    place = len(items) - 1 if position is None else _place(position, len(items), "position")
    return Items((*items[:place], *items[place + 1 :]))


@ONNX.register("SequenceLength")
def sequence_length(items: Items) -> Known:
    return Known(len(items))


@ONNX.register("SplitToSequence")
def split_to_sequence(x: Any, sizes: Any = None, *, axis: int, keepdims: int = 1) -> Items:
    axis = axis_of(axis, rank_of(x))
    (total,) = static([shape_of(x)[axis]], "the size of an axis that is split")
    if sizes is None:
        ends = list(range(1, total + 1))
    elif rank_of(sizes) == 0:
        step = int(number(sizes))
        ends = [min(k + step, total) for k in range(0, total, step)]
    else:
        ends = np.cumsum(static(ints(sizes), "the sizes of SplitToSequence")).tolist()
        if not ends or ends[-1] != total:
            raise ArgumentError(f"the sizes of SplitToSequence add up to {ends[-1] if ends else 0}, not to {total}")
    starts = [0, *ends[:-1]]
    parts = [op.strided_slice(x, [axis], [start], [end]) for start, end in zip(starts, ends, strict=True)]
    drops = sizes is None and not keepdims
    return Items(op.squeeze(part, [axis]) if drops else part for part in parts)


@ONNX.register("ConcatFromSequence")
def concat_from_sequence(items: Items, *, axis: int, new_axis: int = 0) -> Any:
    if not items:
        raise UserError("an empty sequence cannot be joined")
    return op.stack(list(items), axis) if new_axis else op.concat(list(items), axis)


@ONNX.register("SequenceMap")
def sequence_map(items: Items, *others: Any, node: Any) -> Any:
    """The body's results for each item; other sequences go along, tensors are the same for all."""
    body = node.body("body")
    rows: list[Sequence[Any]] = []
    for k, item in enumerate(items):
        rows.append(body(item, *(other[k] if isinstance(other, Items) else other for other in others)))
    return tuple(Items(row[k] for row in rows) for k in range(node.results))
