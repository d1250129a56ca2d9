"""Pooling layers."""

from __future__ import annotations

from typing import Any, ClassVar

from pullback.ir.errors import ArgumentError
from pullback.nn import functional as F
from pullback.nn.functional.axes import each, is_int
from pullback.nn.functional.pooling import (
    expect_no_indices,
    global_avg_pool,
    global_max_pool,
    output_sizes,
    sizes_text,
    windows,
)
from pullback.nn.module import Module

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "GlobalAvgPool1d", "GlobalAvgPool2d",
    "GlobalAvgPool3d", "GlobalMaxPool1d", "GlobalMaxPool2d", "GlobalMaxPool3d", "LPPool1d", "LPPool2d", "LPPool3d",
    "MaxPool1d", "MaxPool2d", "MaxPool3d",
]  # fmt: skip


class _Pool(Module):
    rank: ClassVar[int]

    def extra_repr(self) -> str:
        names = [n for n in ("kernel_size", "stride", "padding", "dilation") if hasattr(self, n)]
        texts = sizes_text(*(getattr(self, n) for n in names))
        return ", ".join(f"{n}={t}" for n, t in zip(names, texts, strict=True))


class _MaxPool(_Pool):
    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:  # fmt: skip
        expect_no_indices(return_indices)
        self.kernel_size, self.stride, self.padding = windows(self.rank, kernel_size, stride, padding)
        self.dilation, self.ceil_mode = each("dilation", dilation, self.rank, 1), ceil_mode

    def forward(self, input: Any) -> Any:
        """The largest element of each window."""
        pool = getattr(F, f"max_pool{self.rank}d")
        return pool(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)


class MaxPool1d(_MaxPool):
    """The largest element of each window: (N, C, L) or (C, L) → (N, C, L').

    L' = ⌊(L + 2·padding - dilation·(kernel_size - 1) - 1) / stride⌋ + 1, rounded up with ``ceil_mode``; ``stride`` is
    the window by default. Padding counts as -∞.

    >>> nn.MaxPool1d(2)

    Args:
        kernel_size: the window's size: an int, or one for each spatial axis.
        stride: the step from window to window; by default the window's size.
        padding: what is added on either side: an int, or one for each spatial axis.
        dilation: the distance of a window's elements: an int, or one for each spatial axis.
        return_indices: must be False: indices are not computed.
        ceil_mode: whether sizes are rounded up, so that a last window may be partial.

    Raises:
        ArgumentError: with ``return_indices``, which are not computed.
    """

    rank = 1


class MaxPool2d(_MaxPool):
    """The largest element of each window: (N, C, H, W) or (C, H, W) → (N, C, H', W'). Arguments are an int or one for
    each axis; see :class:`MaxPool1d`.

    Args:
        kernel_size: the window's size: an int, or one for each spatial axis.
        stride: the step from window to window; by default the window's size.
        padding: what is added on either side: an int, or one for each spatial axis.
        dilation: the distance of a window's elements: an int, or one for each spatial axis.
        return_indices: must be False: indices are not computed.
        ceil_mode: whether sizes are rounded up, so that a last window may be partial.

    Examples:
        >>> nn.MaxPool2d(3, stride=2, padding=1)(np.zeros((8, 16, 28, 28), "float32")).shape
        (8, 16, 14, 14)
    """

    rank = 2


class MaxPool3d(_MaxPool):
    """The largest element of each window: (N, C, D, H, W) or (C, D, H, W) → (N, C, D', H', W'); see
    :class:`MaxPool1d`.

    Args:
        kernel_size: the window's size: an int, or one for each spatial axis.
        stride: the step from window to window; by default the window's size.
        padding: what is added on either side: an int, or one for each spatial axis.
        dilation: the distance of a window's elements: an int, or one for each spatial axis.
        return_indices: must be False: indices are not computed.
        ceil_mode: whether sizes are rounded up, so that a last window may be partial.
    """

    rank = 3


class AvgPool1d(_Pool):
    """The mean of each window: (N, C, L) or (C, L) → (N, C, L').

    L' = ⌊(L + 2·padding - kernel_size) / stride⌋ + 1, rounded up with ``ceil_mode``; ``stride`` is the window by
    default. Padding is 0, and counts unless ``count_include_pad`` is False.

    >>> nn.AvgPool1d(2)

    Args:
        kernel_size: the window's size: an int, or one for each spatial axis.
        stride: the step from window to window; by default the window's size.
        padding: what is added on either side: an int, or one for each spatial axis.
        ceil_mode: whether sizes are rounded up, so that a last window may be partial.
        count_include_pad: whether padding counts in the mean.
    """

    rank = 1

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:  # fmt: skip
        self.kernel_size, self.stride, self.padding = windows(self.rank, kernel_size, stride, padding)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input: Any) -> Any:
        """The mean of each window."""
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _AvgPool(_Pool):
    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> None:  # fmt: skip
        self.kernel_size, self.stride, self.padding = windows(self.rank, kernel_size, stride, padding)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad
        self.divisor_override = divisor_override
        if divisor_override is not None and (not is_int(divisor_override) or divisor_override == 0):
            raise ArgumentError(f"divisor_override must be an int other than 0, got {divisor_override!r}")

    def forward(self, input: Any) -> Any:
        """The mean of each window."""
        return getattr(F, f"avg_pool{self.rank}d")(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
            self.divisor_override,
        )  # fmt: skip


class AvgPool2d(_AvgPool):
    """The mean of each window, or its sum divided by a number: (N, C, H, W) or (C, H, W) → (N, C, H', W').

    Sizes are those of :class:`AvgPool1d`.

    Args:
        kernel_size: the window's size: an int, or one for each spatial axis.
        stride: the step from window to window; by default the window's size.
        padding: what is added on either side: an int, or one for each spatial axis.
        ceil_mode: whether sizes are rounded up, so that a last window may be partial.
        count_include_pad: whether padding counts in the mean.
        divisor_override: what sums are divided by, in place of the number of elements.

    Examples:
        >>> nn.AvgPool2d(2)(np.zeros((8, 16, 28, 28), "float32")).shape
        (8, 16, 14, 14)
    """

    rank = 2


class AvgPool3d(_AvgPool):
    """The mean of each window, or its sum divided by a number: (N, C, D, H, W) or (C, D, H, W) →
    (N, C, D', H', W').

    Sizes are those of :class:`AvgPool1d`.

    Args:
        kernel_size: the window's size: an int, or one for each spatial axis.
        stride: the step from window to window; by default the window's size.
        padding: what is added on either side: an int, or one for each spatial axis.
        ceil_mode: whether sizes are rounded up, so that a last window may be partial.
        count_include_pad: whether padding counts in the mean.
        divisor_override: what sums are divided by, in place of the number of elements.
    """

    rank = 3


class _LPPool(_Pool):
    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> None:
        if not isinstance(norm_type, (int, float)) or isinstance(norm_type, bool) or not 0 < norm_type < float("inf"):
            raise ArgumentError(f"norm_type must be a positive, finite number, got {norm_type!r}")
        self.norm_type, self.ceil_mode = norm_type, ceil_mode
        self.kernel_size, self.stride, _ = windows(self.rank, kernel_size, stride, 0)

    def forward(self, input: Any) -> Any:
        """The norm of each window."""
        pool = getattr(F, f"lp_pool{self.rank}d")
        return pool(input, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        return f"norm_type={self.norm_type}, {super().extra_repr()}, ceil_mode={self.ceil_mode}"


class LPPool1d(_LPPool):
    """(Σ xᵖ)^(1/p) of each window, p = norm_type: (N, C, L) or (C, L) → (N, C, L'); ``stride`` is the window by
    default. As in PyTorch there is no |x|: for an odd p a negative sum has no root (NaN).

    Args:
        norm_type: the p of the p-norm.
        kernel_size: the window's size: an int, or one for each spatial axis.
        stride: the step from window to window; by default the window's size.
        ceil_mode: whether sizes are rounded up, so that a last window may be partial.
    """

    rank = 1


class LPPool2d(_LPPool):
    """(Σ xᵖ)^(1/p) of each window: (N, C, H, W) or (C, H, W) → (N, C, H', W'); see :class:`LPPool1d`.

    Args:
        norm_type: the p of the p-norm.
        kernel_size: the window's size: an int, or one for each spatial axis.
        stride: the step from window to window; by default the window's size.
        ceil_mode: whether sizes are rounded up, so that a last window may be partial.
    """

    rank = 2


class LPPool3d(_LPPool):
    """(Σ xᵖ)^(1/p) of each window: (N, C, D, H, W) or (C, D, H, W) → (N, C, D', H', W'); see :class:`LPPool1d`.

    Args:
        norm_type: the p of the p-norm.
        kernel_size: the window's size: an int, or one for each spatial axis.
        stride: the step from window to window; by default the window's size.
        ceil_mode: whether sizes are rounded up, so that a last window may be partial.
    """

    rank = 3


class _Adaptive(Module):
    rank: ClassVar[int]
    kind: ClassVar[str]

    def __init__(self, output_size: Any) -> None:
        output_sizes(output_size, self.rank)
        self.output_size = tuple(output_size) if isinstance(output_size, list) else output_size

    def forward(self, input: Any) -> Any:
        """One number of each window."""
        return getattr(F, f"adaptive_{self.kind}_pool{self.rank}d")(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveAvgPool(_Adaptive):
    kind = "avg"


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The means of ``output_size`` windows that cover (N, C, L) or (C, L): window o of m over n elements goes from
    ⌊o·n/m⌋ to ⌈(o + 1)·n/m⌉.

    Args:
        output_size: an int.
    """

    rank = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The means of windows that cover (N, C, H, W) or (C, H, W).

    Args:
        output_size: an int, or one for each axis, where None stands for the input's size.

    Examples:
        >>> nn.AdaptiveAvgPool2d(1)(np.zeros((8, 16, 7, 7), "float32")).shape
        (8, 16, 1, 1)
    """

    rank = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The means of windows that cover (N, C, D, H, W) or (C, D, H, W); see :class:`AdaptiveAvgPool2d`.

    Args:
        output_size: an int, or one for each axis, where None stands for the input's size.
    """

    rank = 3


class _AdaptiveMaxPool(_Adaptive):
    kind = "max"

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        expect_no_indices(return_indices)
        super().__init__(output_size)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The maxima of ``output_size`` windows that cover (N, C, L) or (C, L): window o of m over n elements goes from
    ⌊o·n/m⌋ to ⌈(o + 1)·n/m⌉.

    Args:
        output_size: an int.
        return_indices: must be False: indices are not computed.

    Raises:
        ArgumentError: with ``return_indices``, which are not computed.
    """

    rank = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The maxima of windows that cover (N, C, H, W) or (C, H, W).

    Args:
        output_size: an int, or one for each axis, where None stands for the input's size.
        return_indices: must be False: indices are not computed.
    """

    rank = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The maxima of windows that cover (N, C, D, H, W) or (C, D, H, W); see :class:`AdaptiveMaxPool2d`.

    Args:
        output_size: an int, or one for each axis, where None stands for the input's size.
        return_indices: must be False: indices are not computed.
    """

    rank = 3


class _Global(Module):
    """``keepdim``: keep the spatial axes, with size 1."""

    rank: ClassVar[int]

    def __init__(self, keepdim: bool = False) -> None:
        self.keepdim = keepdim

    def extra_repr(self) -> str:
        return "keepdim=True" if self.keepdim else ""


class _GlobalAvgPool(_Global):
    def forward(self, input: Any) -> Any:
        """(N, C, …) → (N, C)."""
        return global_avg_pool(input, self.rank, self.keepdim)


class _GlobalMaxPool(_Global):
    def forward(self, input: Any) -> Any:
        """(N, C, …) → (N, C)."""
        return global_max_pool(input, self.rank, self.keepdim)


class GlobalAvgPool1d(_GlobalAvgPool):
    """The mean of each channel: (N, C, L) → (N, C), or with ``keepdim`` (N, C, 1). Keras's GlobalAveragePooling1D.

    Args:
        keepdim: whether spatial axes stay, with the size 1.
    """

    rank = 1


class GlobalAvgPool2d(_GlobalAvgPool):
    """The mean of each channel: (N, C, H, W) → (N, C), or with ``keepdim`` (N, C, 1, 1).

    Args:
        keepdim: whether spatial axes stay, with the size 1.
    """

    rank = 2


class GlobalAvgPool3d(_GlobalAvgPool):
    """The mean of each channel: (N, C, D, H, W) → (N, C), or with ``keepdim`` (N, C, 1, 1, 1).

    Args:
        keepdim: whether spatial axes stay, with the size 1.
    """

    rank = 3


class GlobalMaxPool1d(_GlobalMaxPool):
    """The maximum of each channel: (N, C, L) → (N, C), or with ``keepdim`` (N, C, 1). Keras's GlobalMaxPooling1D.

    Args:
        keepdim: whether spatial axes stay, with the size 1.
    """

    rank = 1


class GlobalMaxPool2d(_GlobalMaxPool):
    """The maximum of each channel: (N, C, H, W) → (N, C), or with ``keepdim`` (N, C, 1, 1).

    Args:
        keepdim: whether spatial axes stay, with the size 1.
    """

    rank = 2


class GlobalMaxPool3d(_GlobalMaxPool):
    """The maximum of each channel: (N, C, D, H, W) → (N, C), or with ``keepdim`` (N, C, 1, 1, 1).

    Args:
        keepdim: whether spatial axes stay, with the size 1.
    """

    rank = 3
