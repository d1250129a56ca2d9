"""What to do about an array that does not have the shape that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.relax.struct_info import Dim, format_shape


def shape_advice(wanted: Sequence[Dim | str], given: Sequence[int], dtype: str) -> str:
    """A hint: ``wanted`` may have symbolic sizes, which any size fits."""
    integer = "int" in dtype
    if integer and len(given) == len(wanted) + 1 and _fits(wanted, given[:-1]):
        if given[-1] == 1:
            return "these look like labels in a column: array.reshape(-1) makes one number a row of them"
        return (
            "these look like one-hot rows: array.argmax(-1) gives the numbers of the classes;"
            ' pullback.trainer(…, targets="one-hot") takes such targets as they are'
        )
    if len(given) == len(wanted) + 1 and given[-1] == 1 and _fits(wanted, given[:-1]):
        return "the last axis, of size 1, is too much: array.squeeze(-1)"
    if len(wanted) == len(given) + 1 and wanted[-1] == 1 and _fits(wanted[:-1], given):
        return "the last axis, of size 1, is missing: array[:, None]"
    if len(wanted) == len(given) + 1 and _fits(wanted[1:], given):
        return "this is one row: array[None] makes a batch of it"
    if len(wanted) == len(given) > 1 and _fits(wanted, given[::-1]):
        return "it is transposed: array.T"
    if len(wanted) == len(given) > 0 and _fits(wanted[1:], given[1:]):
        return (
            "the first axis counts the rows: inputs and targets have as many, a compiled function what it declares"
            ' (any number when they are symbolic, as in R.Tensor(("n", 3)))'
        )
    if len(wanted) == len(given) + 1 and len(given) > 0 and _fits(wanted[:-1], given):
        return (
            "the last axis is missing; where these are labels of classes, and the loss is a function,"
            " pullback.trainer(…, targets=labels) says so"
        )
    if len(wanted) == len(given) == 4 and _fits((wanted[0], wanted[2], wanted[3], wanted[1]), given):
        return "the channels stand last, the model has them second: array.transpose(0, 3, 1, 2)"
    if len(wanted) == len(given) == 4 and _fits((wanted[0], wanted[3], wanted[1], wanted[2]), given):
        return "the channels stand second, the model has them last: array.transpose(0, 2, 3, 1)"
    if len(given) > len(wanted) > 0 and _count(given) == _count(wanted):
        return f"array.reshape{format_shape(tuple(wanted))} has that shape"
    apart = [(i, w, g) for i, (w, g) in enumerate(zip(wanted, given, strict=False)) if isinstance(w, int) and w != g]
    if len(wanted) == len(given) and len(apart) == 1:
        (axis, size, other), *_ = apart
        return f"the size of axis {axis} is {other}, and the model was made for {size}"
    return "sizes stand in the order of the model's declaration; were inputs and targets exchanged?"


def _fits(wanted: Sequence[Any], given: Sequence[int]) -> bool:
    return len(wanted) == len(given) and all(
        not isinstance(w, int) or w == g for w, g in zip(wanted, given, strict=True)
    )


def _count(sizes: Sequence[Any]) -> int | None:
    """The number of elements, where it is known."""
    count = 1
    for size in sizes:
        if not isinstance(size, int):
            return None
        count *= size
    return count
