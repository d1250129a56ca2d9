"""Windows that slide over the spatial axes of a tensor: what convolution and pooling have in common.

Along one axis the window at position o has the taps k = 0 … taps - 1, and tap k is the element
o·stride - before + k·dilation; outside the tensor it is padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback import te, tir
from pullback.ir.errors import ShapeError, UserError
from pullback.ir.op import Op
from pullback.relax.op.family import known_shape
from pullback.relax.struct_info import Dim, TensorStructInfo, dim, format_shape
from pullback.tir.polynomial import at_most

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}  # the letters of the spatial axes, by their number


@dataclass(frozen=True)
class Layout:
    """The order of a tensor's axes: ``letters`` as it lies in memory, ``standard`` as formulas have it."""

    letters: str
    standard: str

    def to_standard(self, values: Sequence[Any]) -> list[Any]:
        """Sizes or indices in the order of the standard layout."""
        return [values[self.letters.index(c)] for c in self.standard]

    def from_standard(self, values: Iterable[Any]) -> tuple[Any, ...]:
        """Sizes or indices, given in the order of the standard layout, in the tensor's own."""
        found = dict(zip(self.standard, values, strict=True))
        return tuple(found[c] for c in self.letters)

    def standard_array(self, x: np.ndarray) -> np.ndarray:
        """A view of an array in the standard layout."""
        return np.transpose(x, self.to_standard(range(x.ndim)))

    def own_array(self, x: np.ndarray) -> np.ndarray:
        """A view of an array of the standard layout in this one."""
        return np.transpose(x, self.from_standard(range(x.ndim)))


def layout(op: str, name: str, value: Any, standard: str) -> Layout:
    """An attribute that names the axes: the letters of ``standard`` in any order."""
    if not isinstance(value, str) or sorted(value) != sorted(standard):
        raise UserError(f"{op}: {name} must hold the letters {standard} in some order, got {value!r}")
    return Layout(value, standard)


def data_layout(op: str, name: str, value: Any, rank: int) -> Layout:
    """The layout of data with ``rank`` spatial axes."""
    return layout(op, name, value, "NC" + SPATIAL[rank])


def numbers(op: str, name: str, value: Any, rank: int, least: int = 1) -> tuple[int, ...]:
    """An attribute with a number for each spatial axis, or one for all."""
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank
    if len(given) != rank or not _are_ints(given, least):
        count = "an int" if rank == 1 else f"an int or {rank} ints"
        raise ShapeError(f"{op}: {name} must be {count}, not less than {least}, got {value!r}")
    return given


def spatial_sizes(op: str, name: str, value: Any, rank: int, least: int = 1) -> tuple[Any, ...]:
    """An attribute with a size for each spatial axis, or one for all: numbers, or expressions of symbolic sizes."""
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank
    given = tuple(map(canonical, given))
    if not any(isinstance(s, tir.PrimExpr) for s in given):
        return numbers(op, name, value, rank, least)
    numbers(op, name, tuple(least if isinstance(s, tir.PrimExpr) else s for s in given), rank, least)
    return given


def paddings(op: str, value: Any, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The padding before and after each spatial axis: from one number, one an axis, or all before and all after."""
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(given) not in (1, rank, 2 * rank) or not _are_ints(given, 0):
        counts = "an int or 2 ints" if rank == 1 else f"an int, {rank} or {2 * rank} ints"
        raise ShapeError(
            f"{op}: padding must be {counts}, not negative, got {value!r}",
            hint=f"the order of {2 * rank} is: before each spatial axis, then after each",
        )
    each = given * (2 * rank // len(given))
    return each[:rank], each[rank:]


class Windowed(Op):  # as users call it: padding may be a word
    __doc__ = Op.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tensors, attrs = self.signature.bind(self.short, args, kwargs)
        if isinstance(attrs["padding"], str):
            attrs["padding"] = _padding_of_word(self.short, attrs["padding"], tensors, attrs)
        return super().__call__(*tensors, **attrs)


def _padding_of_word(op: str, word: str, tensors: Sequence[Any], attrs: dict[str, Any]) -> tuple[int, ...]:
    """The padding before and after each axis. "valid": none. "same": with stride 1 the result has the data's sizes,
    with others ⌈size / stride⌉, as in Keras. Of an odd number, more stands after the data."""
    if word not in ("same", "valid"):
        hint = 'padding is "same", "valid", or numbers: one, one for each axis, or all before and then all after'
        raise ShapeError(f"{op}: there is no padding {word!r}", hint=hint)
    data = attrs["data_layout"] if "data_layout" in attrs else attrs["layout"]
    rank = len(data) - 2
    if "pool_size" in attrs:
        taps: Sequence[Any] = numbers(op, "pool_size", attrs["pool_size"], rank)
    else:
        kernel = layout(op, "kernel_layout", attrs["kernel_layout"], "OI" + SPATIAL[rank])
        taps = kernel.to_standard(known_shape(op, tensors[1].struct_info, "weight"))[2:]
    strides = numbers(op, "strides", taps if attrs["strides"] is None else attrs["strides"], rank)
    dilation = numbers(op, "dilation", attrs["dilation"], rank)
    sizes = data_layout(op, "layout", data, rank).to_standard(known_shape(op, tensors[0].struct_info, "data"))[2:]
    total = []
    for size, tap, stride, apart in zip(sizes, taps, strides, dilation, strict=True):
        span = (tap - 1) * apart + 1
        if word == "valid":
            total.append(0)
        else:
            around = same_padding(size, span, stride)
            if around is None:
                hint = "give the padding in numbers"
                raise ShapeError(f'{op}: padding="same" with strides needs sizes that are known, got {size}', hint=hint)
            total.append(around)
    return (*(t // 2 for t in total), *(t - t // 2 for t in total))


def same_padding(size: Dim, span: int, stride: int) -> int | None:
    """How much padding in all gives an axis ⌈size / stride⌉ windows of so many elements; None for a symbolic size,
    which stride 1 needs not know."""
    if stride == 1:
        return span - 1
    return max((-(-size // stride) - 1) * stride + span - size, 0) if isinstance(size, int) else None


def _are_ints(values: Sequence[Any], least: int) -> bool:
    return all(isinstance(v, int) and not isinstance(v, bool) and v >= least for v in values)


def canonical(size: Any) -> Any:
    """A symbolic size in canonical form, a number if it is one; anything else as it is."""
    return dim(size) if isinstance(size, tir.PrimExpr) else size


@dataclass(frozen=True)
class Axis:
    """Windows along one axis of ``size`` elements, which may be symbolic, and then ``after`` too."""

    size: Dim
    taps: int
    stride: int
    before: int
    after: Dim
    dilation: int

    @property
    def reach(self) -> int:
        """How far the last tap is from the first."""
        return (self.taps - 1) * self.dilation

    @property
    def padded(self) -> Dim:
        """The size with the padding."""
        return canonical(self.size + self.before + self.after)

    @property
    def is_padded(self) -> bool:
        """Whether there is padding, or may be."""
        return not (self.before == 0 and isinstance(self.after, int) and self.after == 0)

    @property
    def positions(self) -> Dim:
        """How many windows lie wholly in the padded axis."""
        return canonical((self.padded - self.reach - 1) // self.stride + 1)


def standard_shape(op: str, label: str, info: Any, axes: Layout) -> list[Any]:
    """The sizes of data in the standard order. Channels, and all sizes of a weight, are numbers not less than 1; those
    of images may be symbolic, and the batch that or 0."""
    shape = known_shape(op, info, label)
    if len(shape) != len(axes.letters):
        raise ShapeError(
            f"{op}: {label} must have rank {len(axes.letters)}, with the axes {axes.letters}, got {format_shape(shape)}"
        )
    is_data = "N" in axes.letters
    for letter, size in zip(axes.letters, shape, strict=True):
        if letter == "N" or (is_data and letter != "C" and not isinstance(size, int)):
            continue
        if not isinstance(size, int):
            raise ShapeError(
                f"{op}: of the axes {axes.letters} of {label} the channels must be a number, got {format_shape(shape)}"
                if is_data
                else f"{op}: the sizes of {label} must be numbers, got {format_shape(shape)}",
                hint="sizes of the batch and of images may be symbolic",
            )
        if size == 0:
            raise ShapeError(f"{op}: {label} of shape {format_shape(shape)} is empty along its axis {letter}")
    return axes.to_standard(shape)


def expect_room(op: str, label: str, axes: Sequence[Axis]) -> None:
    """Raise a ShapeError if a window has no room in the padded data, as far as sizes are known."""
    if any(at_most(a.positions, 0) for a in axes):
        spans = tuple(a.reach + 1 for a in axes)
        padded = format_shape(a.padded for a in axes)
        raise ShapeError(f"{op}: {label} that spans {spans} is larger than the padded data of size {padded}")


def data_info(axes: Layout, standard: Iterable[Dim], dtype: str) -> TensorStructInfo:
    """The type of a tensor, from its sizes in the standard order."""
    return TensorStructInfo(axes.from_standard(standard), dtype)


# -- the taps of a window


def running(extents: dict[str, Dim]) -> tuple[list[tir.PrimExpr], list[te.ReduceAxis]]:
    """An index for each extent, and the axes that run: an extent of 1 needs none."""
    axes = {n: te.reduce_axis(e, n) for n, e in extents.items() if not (isinstance(e, int) and e == 1)}
    return [axes[n].var if n in axes else tir.as_expr(0) for n in extents], list(axes.values())


def reduced(kind: str, value: tir.PrimExpr, axes: Sequence[te.ReduceAxis]) -> Any:
    """A reduction; over no axes it is the value itself."""
    return te.reduction(kind, value, axes) if axes else value


def tap_extents(taps: Sequence[int]) -> dict[str, Dim]:
    """The numbers of taps by the names of their axes: kh, kw."""
    return dict(zip((f"k{c.lower()}" for c in SPATIAL[len(taps)]), taps, strict=True))


def last_axes(index: Iterable[Any]) -> tuple[Any, ...]:
    """The index of an array's last axes, all of the others."""
    return (..., *index)


def under(tap: Sequence[int], axes: Sequence[Axis]) -> tuple[Any, ...]:
    """The elements of padded data that a tap meets, window by window."""
    starts = [k * a.dilation for k, a in zip(tap, axes, strict=True)]
    return last_axes(
        slice(b, b + (a.positions - 1) * a.stride + 1, a.stride) for b, a in zip(starts, axes, strict=True)
    )
