"""Convolutions and their transposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.ir.errors import ArgumentError
from pullback.nn.functional.axes import batched, each, known_sizes
from pullback.relax import op

__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]


def conv1d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    """The cross-correlation of (N, C, L) or (C, L) with a weight (out, C / groups, kernel), and a bias (out,).

    Args:
        input: a tensor, or an array.
        weight: (out, C / groups, kernel).
        bias: (out,), or None.
        stride: the step from window to window: an int, or one for each spatial axis.
        padding: places on either side: an int, or one for each axis; "valid" (none) or, with stride 1, "same" (the size
            stays).
        dilation: the distance of a window's elements: an int, or one for each spatial axis.
        groups: into how many groups channels are divided; each has weights of its own.

    Returns:
        (N, out, L'), or without N as the input.

    Raises:
        ArgumentError: for what is no such number.
        ShapeError: for shapes that do not fit.
    """
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    """The cross-correlation of (N, C, H, W) or (C, H, W) with a weight (out, C / groups, kernel, kernel), and a bias
    (out,). ``stride``, ``padding`` and ``dilation`` are an int or one for each axis; see :func:`conv1d`.

    Args:
        input: a tensor, or an array.
        weight: (out, C / groups, kernel, kernel).
        bias: (out,), or None.
        stride: the step from window to window: an int, or one for each spatial axis.
        padding: places on either side: an int, or one for each axis; "valid" (none) or, with stride 1, "same" (the size
            stays).
        dilation: the distance of a window's elements: an int, or one for each spatial axis.
        groups: into how many groups channels are divided; each has weights of its own.

    Returns:
        (N, out, H', W'), or without N as the input.
    """
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    """The cross-correlation of (N, C, D, H, W) or (C, D, H, W) with a weight (out, C / groups, kernel, kernel,
    kernel), and a bias (out,); see :func:`conv1d`.

    Args:
        input: a tensor, or an array.
        weight: (out, C / groups, kernel, kernel, kernel).
        bias: (out,), or None.
        stride: the step from window to window: an int, or one for each spatial axis.
        padding: places on either side: an int, or one for each axis; "valid" (none) or, with stride 1, "same" (the size
            stays).
        dilation: the distance of a window's elements: an int, or one for each spatial axis.
        groups: into how many groups channels are divided; each has weights of its own.

    Returns:
        (N, out, D', H', W'), or without N as the input.
    """
    return _conv(3, input, weight, bias, stride, padding, dilation, groups)


def conv_transpose1d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Any:  # fmt: skip
    """The transpose of :func:`conv1d`, its derivative by the input: (N, C, L) or (C, L) with a weight
    (C, out / groups, kernel), and a bias (out,).

    The result has (L - 1)·stride - 2·padding + dilation·(kernel - 1) + output_padding + 1 places; output_padding is
    less than the stride or the dilation.

    Args:
        input: a tensor, or an array.
        weight: (C, out / groups, kernel).
        bias: (out,), or None.
        stride: the distance at which inputs are spread.
        padding: how much of the result is cut off on either side.
        output_padding: what is added to the size of the result, on one side; less than the stride or the dilation.
        groups: into how many groups channels are divided; each has weights of its own.
        dilation: the distance of a window's elements: an int, or one for each spatial axis.

    Returns:
        (N, out, L'), or without N as the input.
    """
    return _transpose(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Any:  # fmt: skip
    """The transpose of :func:`conv2d`: (N, C, H, W) or (C, H, W) with a weight (C, out / groups, kernel, kernel), and
    a bias (out,); see :func:`conv_transpose1d`.

    Args:
        input: a tensor, or an array.
        weight: (C, out / groups, kernel, kernel).
        bias: (out,), or None.
        stride: the distance at which inputs are spread.
        padding: how much of the result is cut off on either side.
        output_padding: what is added to the size of the result, on one side; less than the stride or the dilation.
        groups: into how many groups channels are divided; each has weights of its own.
        dilation: the distance of a window's elements: an int, or one for each spatial axis.

    Returns:
        (N, out, H', W'), or without N as the input.
    """
    return _transpose(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Any:  # fmt: skip
    """The transpose of :func:`conv3d`: (N, C, D, H, W) or (C, D, H, W) with a weight (C, out / groups, kernel, kernel,
    kernel), and a bias (out,); see :func:`conv_transpose1d`.

    Args:
        input: a tensor, or an array.
        weight: (C, out / groups, kernel, kernel, kernel).
        bias: (out,), or None.
        stride: the distance at which inputs are spread.
        padding: how much of the result is cut off on either side.
        output_padding: what is added to the size of the result, on one side; less than the stride or the dilation.
        groups: into how many groups channels are divided; each has weights of its own.
        dilation: the distance of a window's elements: an int, or one for each spatial axis.

    Returns:
        (N, out, D', H', W'), or without N as the input.
    """
    return _transpose(3, input, weight, bias, stride, padding, output_padding, groups, dilation)


def same_padding(name: str, padding: Any, stride: Sequence[int], rank: int) -> Any:
    """The argument ``padding`` of a convolution, checked: "same", "valid" or an int for each axis."""
    if not isinstance(padding, str):
        return each("padding", padding, rank)
    if padding not in ("same", "valid"):
        raise ArgumentError(f'{name}: padding must be "same", "valid" or ints, got {padding!r}')
    if padding == "same" and any(s != 1 for s in stride):
        raise ArgumentError(
            f'{name}: padding="same" needs stride 1, got {tuple(stride)}',
            hint="give the padding in numbers: kernel_size // 2 keeps ⌈size / stride⌉ places of an odd kernel",
        )
    return padding


def with_bias(result: Any, bias: Any, rank: int) -> Any:
    """A result (N, C, …) plus one number for each channel."""
    return result if bias is None else result + op.reshape(bias, (*bias.shape, *(1,) * rank))


def _conv(rank: int, x: Any, w: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    strides = each("stride", stride, rank, 1)
    attrs = {
        "strides": strides,
        "padding": same_padding(f"conv{rank}d", padding, strides, rank),
        "dilation": each("dilation", dilation, rank, 1),
        "groups": each("groups", groups, 1, 1)[0],
    }
    conv = getattr(op.nn, f"conv{rank}d")
    return batched(lambda data: with_bias(conv(data, w, **attrs), bias, rank), x, rank)


def _transpose(
    rank: int, x: Any, w: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, groups: int, dilation: Any
) -> Any:
    strides, apart = each("stride", stride, rank, 1), each("dilation", dilation, rank, 1)
    before, extra = each("padding", padding, rank), each("output_padding", output_padding, rank)
    if any(e >= max(s, d) for e, s, d in zip(extra, strides, apart, strict=True)):
        raise ArgumentError(
            f"conv_transpose{rank}d: output_padding must be less than the stride or the dilation, got {extra} with the"
            f" stride {strides} and the dilation {apart}"
        )
    # What the padding takes away at the end comes back first; beyond that there are zeros.
    after = tuple(max(p - e, 0) for p, e in zip(before, extra, strict=True))
    zeros = [max(e - p, 0) for p, e in zip(before, extra, strict=True)]
    conv = getattr(op.nn, f"conv{rank}d_transpose")

    def of(data: Any) -> Any:
        result = conv(data, w, strides, (*before, *after), 0, apart, each("groups", groups, 1, 1)[0])
        if any(zeros):
            result = op.nn.pad(result, [(0, 0), (0, 0), *((0, z) for z in zeros)])
        return with_bias(result, bias, rank)

    return batched(of, x, rank)


def output_padding_of(
    output_size: Sequence[int], x: Any, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int],
) -> tuple[int, ...]:  # fmt: skip
    """The output_padding with which a transposed convolution of ``x`` has the spatial sizes ``output_size``."""
    rank = len(kernel)
    wanted = each("output_size", list(output_size)[-rank:], rank, 1)
    sizes = known_sizes(x.shape[-rank:], "output_size")
    least = [
        (n - 1) * s - 2 * p + d * (k - 1) + 1
        for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True)
    ]
    most = [n + max(s, d) - 1 for n, s, d in zip(least, stride, dilation, strict=True)]
    if len(output_size) not in (rank, len(x.shape)) or any(
        not a <= w <= b for w, a, b in zip(wanted, least, most, strict=True)
    ):
        raise ArgumentError(
            f"output_size must be {rank} sizes from {tuple(least)} to {tuple(most)} for an input of the spatial sizes"
            f" {sizes}, got {tuple(output_size)}"
        )
    return tuple(w - n for w, n in zip(wanted, least, strict=True))
