"""Layers that resize images, and move their pixels and channels."""

from __future__ import annotations

from typing import Any

from pullback.ir.errors import ArgumentError
from pullback.nn import functional as F
from pullback.nn.functional.axes import each
from pullback.nn.module import Module

__all__ = [
    "ChannelShuffle", "Fold", "PixelShuffle", "PixelUnshuffle", "Unfold", "Upsample", "UpsamplingBilinear2d",
    "UpsamplingNearest2d",
]  # fmt: skip


class Upsample(Module):
    """(N, C, L), (N, C, H, W) or (N, C, D, H, W) with the spatial axes resized.

    Args:
        size: an int, or one for each axis; or give ``scale_factor``.
        scale_factor: the ratio of the sizes: a number, or one for each spatial axis.
        mode: "nearest", "linear" (of sequences), "bilinear" and "bicubic" (of images) or "trilinear" (of volumes).
        align_corners: whether the outermost elements stay where they are; else (by default) the edges do.
        recompute_scale_factor: whether places are those of the ratio of the sizes, where a factor gives no whole size;
            by default those of the factor.

    Raises:
        ArgumentError: for a mode that does not fit.

    Examples:
        >>> nn.Upsample(scale_factor=2, mode="bilinear")(np.zeros((1, 3, 8, 8), "float32")).shape
        (1, 3, 16, 16)
    """

    def __init__(
        self, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:  # fmt: skip
        if (size is None) == (scale_factor is None):
            raise ArgumentError("Upsample takes size or scale_factor: one of them")
        self.size, self.scale_factor, self.mode = size, scale_factor, mode
        self.align_corners, self.recompute_scale_factor = align_corners, recompute_scale_factor

    def forward(self, input: Any) -> Any:
        """The resized input."""
        return F.interpolate(
            input, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor
        )

    def extra_repr(self) -> str:
        text = f"scale_factor={self.scale_factor}" if self.size is None else f"size={self.size}"
        return f"{text}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Images (N, C, H, W) resized, each pixel that of the nearest one before it.

    Args:
        size: the size of the result: an int, or one for each spatial axis; or give ``scale_factor``.
        scale_factor: the ratio of the sizes: a number, or one for each spatial axis.
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor)


class UpsamplingBilinear2d(Upsample):
    """Images (N, C, H, W) resized linearly along both axes, the outermost pixels staying where they are.

    Args:
        size: the size of the result: an int, or one for each spatial axis; or give ``scale_factor``.
        scale_factor: the ratio of the sizes: a number, or one for each spatial axis.
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "bilinear", True)


class PixelShuffle(Module):
    """(…, C·r², H, W) → (…, C, H·r, W·r) with r = upscale_factor (Shi et al. 2016).

    Args:
        upscale_factor: r.
    """

    def __init__(self, upscale_factor: int) -> None:
        (self.upscale_factor,) = each("upscale_factor", upscale_factor, 1, 1)

    def forward(self, input: Any) -> Any:
        """(…, C·r², H, W) → (…, C, H·r, W·r)."""
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """(…, C, H·r, W·r) → (…, C·r², H, W) with r = downscale_factor: the inverse of :class:`PixelShuffle`.

    Args:
        downscale_factor: r.
    """

    def __init__(self, downscale_factor: int) -> None:
        (self.downscale_factor,) = each("downscale_factor", downscale_factor, 1, 1)

    def forward(self, input: Any) -> Any:
        """(…, C, H·r, W·r) → (…, C·r², H, W)."""
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """(N, C, …) with the channels of ``groups`` groups taken in turn (Zhang et al., ShuffleNet, 2018).

    Args:
        groups: the number of groups, which divides the channels.
    """

    def __init__(self, groups: int) -> None:
        (self.groups,) = each("groups", groups, 1, 1)

    def forward(self, input: Any) -> Any:
        """(N, C, …) → (N, C, …)."""
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"


class Unfold(Module):
    """The windows of images as columns: (N, C, H, W) or (C, H, W) → (N, C·kernel area, windows).

    Args:
        kernel_size: the window's size: an int, or one for each spatial axis.
        dilation: the distance of a window's elements: an int, or one for each spatial axis.
        padding: what is added on either side: an int, or one for each spatial axis.
        stride: the step from window to window: an int, or one for each spatial axis.
    """

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> None:
        self.kernel_size, self.dilation = each("kernel_size", kernel_size, 2, 1), each("dilation", dilation, 2, 1)
        self.padding, self.stride = each("padding", padding, 2), each("stride", stride, 2, 1)

    def forward(self, input: Any) -> Any:
        """The columns of the windows."""
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"


class Fold(Module):
    """The sums of columns where they came from, the adjoint of :class:`Unfold`: (N, C·kernel area, windows) →
    (N, C, *output_size).

    Args:
        output_size: (height, width) of the images: an int, or both.
        kernel_size: the window's size: an int, or one for each spatial axis.
        dilation: the distance of a window's elements: an int, or one for each spatial axis.
        padding: what is added on either side: an int, or one for each spatial axis.
        stride: the step from window to window: an int, or one for each spatial axis.
    """

    def __init__(
        self, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
    ) -> None:
        self.output_size = each("output_size", output_size, 2, 1)
        self.kernel_size, self.dilation = each("kernel_size", kernel_size, 2, 1), each("dilation", dilation, 2, 1)
        self.padding, self.stride = each("padding", padding, 2), each("stride", stride, 2, 1)

    def forward(self, input: Any) -> Any:
        """The sums of the columns."""
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation},"
            f" padding={self.padding}, stride={self.stride}"
        )
