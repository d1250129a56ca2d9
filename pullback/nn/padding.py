"""Padding layers."""

from __future__ import annotations

from typing import Any, ClassVar

from pullback.ir.errors import ArgumentError
from pullback.nn import functional as F
from pullback.nn.functional.axes import is_int
from pullback.nn.module import Module

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
    "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip


class _Pad(Module):
    """Padding of the last ``rank`` axes in a mode of F.pad."""

    rank: ClassVar[int]
    mode: ClassVar[str]

    def __init__(self, padding: Any) -> None:
        given = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * (2 * self.rank)
        if len(given) != 2 * self.rank or not all(map(is_int, given)):
            raise ArgumentError(
                f"padding must be an int or {2 * self.rank} ints, before and after each axis from the last one on,"
                f" got {padding!r}",
                hint="of images (left, right, top, bottom)",
            )
        self.padding = given

    def forward(self, input: Any) -> Any:
        """The input with more around its last axes."""
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    mode = "constant"

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Any) -> Any:
        """The input with more around its last axes."""
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """``value`` around the last axis: (…, L) → (…, left + L + right).

    Args:
        padding: an int for both sides, or (left, right); negative numbers cut off.
        value: what is put there.

    Examples:
        >>> nn.ConstantPad1d((2, 1), 0.5)(np.zeros((1, 3), "float32")).numpy().tolist()
        [[0.5, 0.5, 0.0, 0.0, 0.0, 0.5]]
    """

    rank = 1


class ConstantPad2d(_ConstantPad):
    """``value`` around the last two axes.

    Args:
        padding: an int, or (left, right, top, bottom).
        value: what is put there.
    """

    rank = 2


class ConstantPad3d(_ConstantPad):
    """``value`` around the last three axes.

    Args:
        padding: an int, or (left, right, top, bottom, front, back).
        value: what is put there.
    """

    rank = 3


class _ZeroPad(_Pad):
    mode = "constant"


class ZeroPad1d(_ZeroPad):
    """Zeros around the last axis.

    Args:
        padding: an int for both sides, or (left, right).
    """

    rank = 1


class ZeroPad2d(_ZeroPad):
    """Zeros around the last two axes.

    Args:
        padding: an int, or (left, right, top, bottom).
    """

    rank = 2


class ZeroPad3d(_ZeroPad):
    """Zeros around the last three axes.

    Args:
        padding: an int, or (left, right, top, bottom, front, back).
    """

    rank = 3


class _ReflectionPad(_Pad):
    mode = "reflect"


class ReflectionPad1d(_ReflectionPad):
    """The mirror image around the last axis, its edge not repeated: less than the axis has.

    Args:
        padding: an int, or (left, right).
    """

    rank = 1


class ReflectionPad2d(_ReflectionPad):
    """The mirror image around the last two axes, edges not repeated.

    Args:
        padding: an int, or (left, right, top, bottom).
    """

    rank = 2


class ReflectionPad3d(_ReflectionPad):
    """The mirror image around the last three axes, edges not repeated.

    Args:
        padding: an int, or (left, right, top, bottom, front, back).
    """

    rank = 3


class _ReplicationPad(_Pad):
    mode = "replicate"


class ReplicationPad1d(_ReplicationPad):
    """The element at the edge around the last axis.

    Args:
        padding: an int, or (left, right).
    """

    rank = 1


class ReplicationPad2d(_ReplicationPad):
    """The element at the edge around the last two axes.

    Args:
        padding: an int, or (left, right, top, bottom).
    """

    rank = 2


class ReplicationPad3d(_ReplicationPad):
    """The element at the edge around the last three axes.

    Args:
        padding: an int, or (left, right, top, bottom, front, back).
    """

    rank = 3


class _CircularPad(_Pad):
    mode = "circular"


class CircularPad1d(_CircularPad):
    """What follows when the last axis is repeated: at most as much as it has.

    Args:
        padding: an int, or (left, right).
    """

    rank = 1


class CircularPad2d(_CircularPad):
    """What follows when the last two axes are repeated.

    Args:
        padding: an int, or (left, right, top, bottom).
    """

    rank = 2


class CircularPad3d(_CircularPad):
    """What follows when the last three axes are repeated.

    Args:
        padding: an int, or (left, right, top, bottom, front, back).
    """

    rank = 3
