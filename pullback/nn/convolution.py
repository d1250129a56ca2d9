"""Convolution layers and their transposes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from pullback.ir.errors import ArgumentError, ShapeError
from pullback.nn import functional as F
from pullback.nn.functional.axes import each
from pullback.nn.functional.convolution import output_padding_of, same_padding
from pullback.nn.init import KaimingUniform, Uniform
from pullback.nn.module import Module
from pullback.nn.parameter import Parameter, shape_of
from pullback.relax.struct_info import format_shape

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

PADDING_MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "replicate", "circular": "circular"}


class _Convolution(Module):
    """What all convolutions are made of: checked arguments, a weight and a bias."""

    rank: ClassVar[int]

    def _set(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any, dilation: Any, groups: int,
        padding_mode: str,
    ) -> None:  # fmt: skip
        shape_of(in_channels, out_channels)
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if each("groups", groups, 1, 1)[0] > 0 and channels % groups:
                raise ArgumentError(f"{name} must be divisible by groups, got {channels} and {groups}")
        if padding_mode not in PADDING_MODES:
            raise ArgumentError(f"padding_mode must be one of {', '.join(PADDING_MODES)}, got {padding_mode!r}")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = each("kernel_size", kernel_size, self.rank, 1)
        self.stride = each("stride", stride, self.rank, 1)
        self.dilation = each("dilation", dilation, self.rank, 1)
        self.padding_mode = padding_mode

    def _make(self, shape: tuple[int, ...], bias: bool, dtype: str | None) -> None:
        """The parameters, which begin as PyTorch's: uniform in ±1/√(what a place of the weight's axis 1 … sums)."""
        self.weight = Parameter(shape, init=KaimingUniform(math.sqrt(5)), dtype=dtype)
        bound = 1 / math.sqrt(max(1, math.prod(shape[1:])))
        self.bias = Parameter((self.out_channels,), init=Uniform(-bound, bound), dtype=dtype) if bias else None

    def _expect_channels(self, x: Any) -> None:
        shape = x.shape
        channels = shape[-self.rank - 1] if len(shape) > self.rank else self.in_channels
        if isinstance(channels, int) and channels != self.in_channels:
            hint = "channels are the axis before the spatial ones: (N, C, …)"
            if len(shape) == self.rank + 2 and shape[-1] == self.in_channels:
                order = ", ".join(map(str, (0, self.rank + 1, *range(1, self.rank + 1))))
                hint += f"; x.transpose({order}) of a NumPy array moves them there"
            raise ShapeError(
                f"in_channels is {self.in_channels}, got an input of shape {format_shape(shape)}: {channels} channels",
                hint=hint,
            )
        if len(shape) == self.rank + 1 and not isinstance(channels, int):
            hint = "x[:, None] makes one channel" if self.in_channels == 1 else "the input is (N, C, …)"
            message = f"an input of shape {format_shape(shape)} has no axis of channels"
            raise ShapeError(message, hint=hint)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        for name, default in {"padding": 0, "output_padding": 0, "dilation": 1, "groups": 1, "bias": True}.items():
            value = getattr(self, name, default) if name != "bias" else self.bias is not None
            if value not in (default, (default,) * self.rank):
                text += f", {name}={value!r}"
        return text + (f", padding_mode={self.padding_mode!r}" if self.padding_mode != "zeros" else "")


class _Conv(_Convolution):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros", *, dtype: str | None = None,
    ) -> None:  # fmt: skip
        self._set(in_channels, out_channels, kernel_size, stride, dilation, groups, padding_mode)
        self.padding = same_padding(type(self).__name__, padding, self.stride, self.rank)
        self._make((out_channels, in_channels // groups, *self.kernel_size), bias, dtype)

    def forward(self, input: Any) -> Any:
        """The convolution of a batch, or of a single example without the axis N."""
        self._expect_channels(input)
        padding = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._widths(), PADDING_MODES[self.padding_mode])
            padding = 0
        conv = getattr(F, f"conv{self.rank}d")
        return conv(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)

    def _widths(self) -> list[int]:
        """The padding in the order of F.pad: before and after, from the last axis on."""
        if self.padding == "valid":
            return [0] * (2 * self.rank)
        if self.padding == "same":
            total = [d * (k - 1) for k, d in zip(self.kernel_size, self.dilation, strict=True)]
            return [w for t in reversed(total) for w in (t // 2, t - t // 2)]
        return [w for p in reversed(self.padding) for w in (p, p)]


class Conv1d(_Conv):
    """A convolution (a cross-correlation) of sequences: (N, in_channels, L) or (in_channels, L) →
    (N, out_channels, L').

    L' = ⌊(L + 2·padding - dilation·(kernel_size - 1) - 1) / stride⌋ + 1.

    Parameters: ``weight`` (out_channels, in_channels / groups, kernel_size) and ``bias`` (out_channels,), both uniform
    in ±1/√(in_channels / groups · kernel_size) at first, as in ``torch.nn.Conv1d``.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the result.
        kernel_size: the window's size: an int, or one for each spatial axis.
        stride: the step from window to window: an int, or one for each spatial axis.
        padding: places on either side, which ``padding_mode`` fills; or "valid" (none) or, with stride 1, "same" (L' =
            L).
        dilation: the distance of a window's elements: an int, or one for each spatial axis.
        groups: each group of channels has its own weights and makes its own results.
        bias: whether there is a bias.
        padding_mode: "zeros", "reflect", "replicate" or "circular".
        dtype: of the parameters, float32 by default.

    Raises:
        ArgumentError: for channels that the groups do not divide, or a number that is none.

    Examples:
        >>> nn.Conv1d(16, 32, 3, padding=1)(np.zeros((2, 16, 50), "float32")).shape
        (2, 32, 50)
    """

    rank = 1


class Conv2d(_Conv):
    """A convolution (a cross-correlation) of images: (N, in_channels, H, W) or (in_channels, H, W) →
    (N, out_channels, H', W').

    H' = ⌊(H + 2·padding - dilation·(kernel_size - 1) - 1) / stride⌋ + 1. ``kernel_size``, ``stride``, ``padding`` and
    ``dilation`` are an int or one for each axis; ``padding`` may be "valid" or, with stride 1, "same"; ``padding_mode``
    is "zeros", "reflect", "replicate" or "circular".

    Parameters: ``weight`` (out_channels, in_channels / groups, kernel, kernel) and ``bias`` (out_channels,), both
    uniform in ±1/√(in_channels / groups · kernel area) at first, as in ``torch.nn.Conv2d``.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the result.
        kernel_size: the window's size: an int, or one for each spatial axis.
        stride: the step from window to window: an int, or one for each spatial axis.
        padding: an int or one for each axis; "valid" (none) or, with stride 1, "same" (the size stays).
        dilation: the distance of a window's elements: an int, or one for each spatial axis.
        groups: into how many groups channels are divided; each has weights of its own.
        bias: whether there is a bias.
        padding_mode: "zeros", "reflect", "replicate" or "circular".
        dtype: of the parameters, float32 by default.

    Raises:
        ArgumentError: for channels that the groups do not divide, or a number that is none.

    Examples:
        >>> nn.Conv2d(3, 32, 3, stride=2, padding=1)(np.zeros((8, 3, 32, 32), "float32")).shape
        (8, 32, 16, 16)
    """

    rank = 2


class Conv3d(_Conv):
    """A convolution (a cross-correlation) of volumes: (N, in_channels, D, H, W) or (in_channels, D, H, W) →
    (N, out_channels, D', H', W'). Arguments, parameters and errors as :class:`Conv2d`.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the result.
        kernel_size: the window's size: an int, or one for each spatial axis.
        stride: the step from window to window: an int, or one for each spatial axis.
        padding: an int or one for each axis; "valid" (none) or, with stride 1, "same" (the size stays).
        dilation: the distance of a window's elements: an int, or one for each spatial axis.
        groups: into how many groups channels are divided; each has weights of its own.
        bias: whether there is a bias.
        padding_mode: "zeros", "reflect", "replicate" or "circular".
        dtype: of the parameters, float32 by default.
    """

    rank = 3


class _Transpose(_Convolution):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros", *,
        dtype: str | None = None,
    ) -> None:  # fmt: skip
        self._set(in_channels, out_channels, kernel_size, stride, dilation, groups, padding_mode)
        if padding_mode != "zeros":
            raise ArgumentError(f'{type(self).__name__} has the padding_mode "zeros" alone, got {padding_mode!r}')
        self.padding = each("padding", padding, self.rank)
        self.output_padding = each("output_padding", output_padding, self.rank)
        self._make((in_channels, out_channels // groups, *self.kernel_size), bias, dtype)

    def forward(self, input: Any, output_size: Sequence[int] | None = None) -> Any:
        """The transposed convolution; ``output_size``, the spatial sizes of the result, stands for output_padding."""
        self._expect_channels(input)
        extra = self.output_padding
        if output_size is not None:
            extra = output_padding_of(output_size, input, self.kernel_size, self.stride, self.padding, self.dilation)
        conv = getattr(F, f"conv_transpose{self.rank}d")
        return conv(input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation)


class ConvTranspose1d(_Transpose):
    """The transpose of :class:`Conv1d`: (N, in_channels, L) or (in_channels, L) → (N, out_channels, L').

    L' = (L - 1)·stride - 2·padding + dilation·(kernel_size - 1) + output_padding + 1, with an output_padding less than
    the stride or the dilation. ``forward`` takes ``output_size`` too, from which output_padding follows.

    Parameters: ``weight`` (in_channels, out_channels / groups, kernel_size) and ``bias`` (out_channels,), both uniform
    in ±1/√(out_channels / groups · kernel_size) at first, as in ``torch.nn.ConvTranspose1d``.

    >>> nn.ConvTranspose1d(32, 16, 4, stride=2, padding=1)     # twice as long

    Args:
        in_channels: channels of the input.
        out_channels: channels of the result.
        kernel_size: the window's size: an int, or one for each spatial axis.
        stride: the distance at which inputs are spread.
        padding: how much of the result is cut off on either side.
        output_padding: what is added to the size of the result, on one side; less than the stride or the dilation.
        groups: into how many groups channels are divided; each has weights of its own.
        bias: whether there is a bias.
        dilation: the distance of a window's elements: an int, or one for each spatial axis.
        padding_mode: must be "zeros".
        dtype: of the parameters, float32 by default.
    """

    rank = 1


class ConvTranspose2d(_Transpose):
    """The transpose of :class:`Conv2d`: (N, in_channels, H, W) or (in_channels, H, W) → (N, out_channels, H', W').
    Sizes, parameters and ``output_size`` as :class:`ConvTranspose1d`.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the result.
        kernel_size: the window's size: an int, or one for each spatial axis.
        stride: the distance at which inputs are spread.
        padding: how much of the result is cut off on either side.
        output_padding: what is added to the size of the result, on one side; less than the stride or the dilation.
        groups: into how many groups channels are divided; each has weights of its own.
        bias: whether there is a bias.
        dilation: the distance of a window's elements: an int, or one for each spatial axis.
        padding_mode: must be "zeros".
        dtype: of the parameters, float32 by default.

    Examples:
        >>> nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1)(np.zeros((8, 32, 14, 14), "float32")).shape
        (8, 16, 28, 28)
    """

    rank = 2


class ConvTranspose3d(_Transpose):
    """The transpose of :class:`Conv3d`: (N, in_channels, D, H, W) or (in_channels, D, H, W) →
    (N, out_channels, D', H', W'). Sizes, parameters and ``output_size`` as :class:`ConvTranspose1d`.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the result.
        kernel_size: the window's size: an int, or one for each spatial axis.
        stride: the distance at which inputs are spread.
        padding: how much of the result is cut off on either side.
        output_padding: what is added to the size of the result, on one side; less than the stride or the dilation.
        groups: into how many groups channels are divided; each has weights of its own.
        bias: whether there is a bias.
        dilation: the distance of a window's elements: an int, or one for each spatial axis.
        padding_mode: must be "zeros".
        dtype: of the parameters, float32 by default.
    """

    rank = 3
