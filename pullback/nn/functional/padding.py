"""Padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.ir.errors import ArgumentError, ShapeError
from pullback.nn.functional.axes import is_int
from pullback.relax import op
from pullback.relax.struct_info import format_shape

__all__ = ["pad"]

MODES = ("constant", "reflect", "replicate", "circular")


def pad(input: Any, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    """``input`` with more around its last axes.

    Args:
        input: a tensor, or an array.
        pad: how much before and after each axis, in pairs from the last axis on: (left, right, top, bottom) of images.
            Negative numbers cut off.
        mode: "constant" fills with ``value`` (0 by default); "reflect" with the mirror image, whose edge is not
            repeated (less than the axis has); "replicate" with the element at the edge; "circular" with what follows
            when the input is repeated (at most as much as the axis has).
        value: what a constant padding holds, 0 by default.

    Returns:
        the larger tensor.

    Raises:
        ArgumentError: for a pad of an odd number or an unknown mode.
        ShapeError: for more pairs than axes, or padding that the mode does not allow.

    Examples:
        >>> F.pad(np.zeros((1, 1, 4, 4), "float32"), (1, 1, 2, 2)).shape     # two columns, four rows more
        (1, 1, 8, 6)
    """
    if mode not in MODES:
        raise ArgumentError(f"pad: mode must be one of {', '.join(MODES)}, got {mode!r}")
    if mode != "constant" and value:
        raise ArgumentError(f"pad: mode {mode!r} takes no value, got {value!r}")
    if value is not None and "int" in input.dtype and not float(value).is_integer():
        raise ArgumentError(f"pad: a tensor of {input.dtype} cannot hold the value {value!r}")
    if not isinstance(pad, (tuple, list)) or len(pad) % 2 or not all(map(is_int, pad)):
        raise ArgumentError(
            f"pad: pad must be ints, before and after each axis from the last one on, got {pad!r}",
            hint="of images (left, right, top, bottom)",
        )
    rank, axes = len(input.shape), len(pad) // 2
    if axes > rank:
        raise ShapeError(f"pad: {axes} pairs are too many for a tensor of the shape {format_shape(input.shape)}")
    pairs = [(int(pad[2 * k]), int(pad[2 * k + 1])) for k in reversed(range(axes))]
    widths = [(0, 0)] * (rank - axes) + pairs
    more = [(max(before, 0), max(after, 0)) for before, after in widths]
    less = [(max(-before, 0), max(-after, 0)) for before, after in widths]
    if mode in ("reflect", "replicate"):  # as in PyTorch these see what is cut off
        return _cut(_padded(input, more, mode, value), less)
    return _padded(_cut(input, less), more, mode, value)


def _padded(x: Any, widths: Sequence[tuple[int, int]], mode: str, value: float | None) -> Any:
    if not any(w for pair in widths for w in pair):
        return x
    return op.nn.pad(x, widths, mode, 0.0 if value is None else value)


def _cut(x: Any, widths: Sequence[tuple[int, int]]) -> Any:
    axes = [axis for axis, pair in enumerate(widths) if any(pair)]
    for axis in axes:
        if is_int(x.shape[axis]) and sum(widths[axis]) > x.shape[axis]:
            raise ShapeError(f"pad: axis {axis} of the shape {format_shape(x.shape)} has less than {widths[axis]}")
    if not axes:
        return x
    ends = [x.shape[axis] - widths[axis][1] for axis in axes]
    return op.strided_slice(x, axes, [widths[axis][0] for axis in axes], ends)
