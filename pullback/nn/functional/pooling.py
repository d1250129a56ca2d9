"""Pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pullback.ir.errors import ArgumentError
from pullback.nn.functional.axes import batched, each, is_int, known_sizes
from pullback.relax import op
from pullback.relax.expr import const

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "lp_pool1d",
    "lp_pool2d", "lp_pool3d", "max_pool1d", "max_pool2d", "max_pool3d",
]  # fmt: skip


def max_pool1d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest element of each window of (N, C, L) or (C, L).

    ``stride`` is the window by default. Padding counts as -∞, and is less than the window.

    Args:
        input: a tensor, or an array.
        kernel_size: the window's size: an int, or one for each spatial axis.
        stride: the step from window to window; by default the window's size.
        padding: what is added on either side: an int, or one for each spatial axis.
        dilation: the distance of a window's elements: an int, or one for each spatial axis.
        ceil_mode: a last window may reach beyond the padded data, if it starts within the data or the padding before
            them.
        return_indices: must be False: indices are not computed.

    Returns:
        (N, C, L'), or without N as the input.

    Raises:
        ArgumentError: with ``return_indices``, which are not computed.
    """
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest element of each window of (N, C, H, W) or (C, H, W); see :func:`max_pool1d`.

    Args:
        input: a tensor, or an array.
        kernel_size: the window's size: an int, or one for each spatial axis.
        stride: the step from window to window; by default the window's size.
        padding: what is added on either side: an int, or one for each spatial axis.
        dilation: the distance of a window's elements: an int, or one for each spatial axis.
        ceil_mode: whether sizes are rounded up, so that a last window may be partial.
        return_indices: must be False: indices are not computed.

    Returns:
        (N, C, H', W'), or without N as the input.

    Examples:
        >>> F.max_pool2d(np.zeros((8, 16, 28, 28), "float32"), 2).shape
        (8, 16, 14, 14)
    """
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest element of each window of (N, C, D, H, W) or (C, D, H, W); see :func:`max_pool1d`.

    Args:
        input: a tensor, or an array.
        kernel_size: the window's size: an int, or one for each spatial axis.
        stride: the step from window to window; by default the window's size.
        padding: what is added on either side: an int, or one for each spatial axis.
        dilation: the distance of a window's elements: an int, or one for each spatial axis.
        ceil_mode: whether sizes are rounded up, so that a last window may be partial.
        return_indices: must be False: indices are not computed.

    Returns:
        (N, C, D', H', W'), or without N as the input.
    """
    return _max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def _max_pool(
    rank: int, x: Any, window: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, indices: bool
) -> Any:
    expect_no_indices(indices)
    window, strides, widths = windows(rank, window, stride, padding)
    apart = each("dilation", dilation, rank, 1)
    pool = getattr(op.nn, f"max_pool{rank}d")
    return batched(lambda data: pool(data, window, strides, widths, apart, bool(ceil_mode)), x, rank)


def windows(rank: int, kernel_size: Any, stride: Any, padding: Any) -> tuple[tuple[int, ...], ...]:
    """Windows, strides and padding of a pooling, checked."""
    window, widths = each("kernel_size", kernel_size, rank, 1), each("padding", padding, rank)
    return window, window if stride is None else each("stride", stride, rank, 1), widths


def expect_no_indices(return_indices: bool) -> None:
    """Raise an ArgumentError where indices are asked for."""
    if return_indices:
        raise ArgumentError("return_indices is not supported: the places of the maxima are not computed")


def avg_pool1d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:  # fmt: skip
    """The mean of each window of (N, C, L) or (C, L).

    ``stride`` is the window by default. Padding is 0, and counts unless ``count_include_pad`` is False.

    Args:
        input: a tensor, or an array.
        kernel_size: the window's size: an int, or one for each spatial axis.
        stride: the step from window to window; by default the window's size.
        padding: what is added on either side: an int, or one for each spatial axis.
        ceil_mode: a last window may reach beyond the padded data, if it starts within the data or the padding before
            them.
        count_include_pad: whether padding counts in the mean.

    Returns:
        (N, C, L'), or without N as the input.
    """
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Any:  # fmt: skip
    """The mean of each window of (N, C, H, W) or (C, H, W), or its sum divided by ``divisor_override``; see
    :func:`avg_pool1d`.

    Args:
        input: a tensor, or an array.
        kernel_size: the window's size: an int, or one for each spatial axis.
        stride: the step from window to window; by default the window's size.
        padding: what is added on either side: an int, or one for each spatial axis.
        ceil_mode: whether sizes are rounded up, so that a last window may be partial.
        count_include_pad: whether padding counts in the mean.
        divisor_override: what sums are divided by, in place of the number of elements.

    Returns:
        (N, C, H', W'), or without N as the input.
    """
    return _avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Any:  # fmt: skip
    """The mean of each window of (N, C, D, H, W) or (C, D, H, W), or its sum divided by ``divisor_override``; see
    :func:`avg_pool1d`.

    Args:
        input: a tensor, or an array.
        kernel_size: the window's size: an int, or one for each spatial axis.
        stride: the step from window to window; by default the window's size.
        padding: what is added on either side: an int, or one for each spatial axis.
        ceil_mode: whether sizes are rounded up, so that a last window may be partial.
        count_include_pad: whether padding counts in the mean.
        divisor_override: what sums are divided by, in place of the number of elements.

    Returns:
        (N, C, D', H', W'), or without N as the input.
    """
    return _avg_pool(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _avg_pool(
    rank: int, x: Any, window: Any, stride: Any, padding: Any, ceil_mode: bool, count_padding: bool, divisor: Any
) -> Any:
    window, strides, widths = windows(rank, window, stride, padding)
    pool = getattr(op.nn, f"avg_pool{rank}d")
    if divisor is None:
        return batched(lambda data: pool(data, window, strides, widths, 1, ceil_mode, count_padding), x, rank)
    if not is_int(divisor) or divisor == 0:
        raise ArgumentError(f"divisor_override must be an int other than 0, got {divisor!r}")
    factor = math.prod(window) / divisor

    def summed(data: Any) -> Any:
        if not ceil_mode:
            mean = pool(data, window, strides, widths, 1, False, True)
        else:  # with the zeros that fill the last windows, all of them are as large
            sizes = known_sizes(data.shape[2:], "divisor_override with ceil_mode")
            axes = zip(sizes, window, strides, widths, strict=True)
            around = [(p, p + _missing(n, k, s, p)) for n, k, s, p in axes]
            mean = pool(op.nn.pad(data, [(0, 0), (0, 0), *around]), window, strides, 0, 1, False, True)
        return mean * const(factor, mean.dtype)

    return batched(summed, x, rank)


def _missing(size: int, window: int, stride: int, padding: int) -> int:
    """How many places the last window of ceil_mode reaches beyond the padded data."""
    last = -(-(size + 2 * padding - window) // stride)
    if last * stride >= size + padding:
        last -= 1
    return max(last * stride + window - size - 2 * padding, 0)


def lp_pool1d(input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Any:
    """(Σ xᵖ)^(1/p) of each window of (N, C, L) or (C, L), p = norm_type > 0; ``stride`` is the window by default.

    Args:
        input: a tensor, or an array.
        norm_type: the p of the p-norm.
        kernel_size: the window's size: an int, or one for each spatial axis.
        stride: the step from window to window; by default the window's size.
        ceil_mode: whether sizes are rounded up, so that a last window may be partial.

    Returns:
        (N, C, L'), or without N as the input.
    """
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Any:
    """(Σ xᵖ)^(1/p) of each window of (N, C, H, W) or (C, H, W); see :func:`lp_pool1d`.

    Args:
        input: a tensor, or an array.
        norm_type: the p of the p-norm.
        kernel_size: the window's size: an int, or one for each spatial axis.
        stride: the step from window to window; by default the window's size.
        ceil_mode: whether sizes are rounded up, so that a last window may be partial.

    Returns:
        (N, C, H', W'), or without N as the input.
    """
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Any:
    """(Σ xᵖ)^(1/p) of each window of (N, C, D, H, W) or (C, D, H, W); see :func:`lp_pool1d`.

    Args:
        input: a tensor, or an array.
        norm_type: the p of the p-norm.
        kernel_size: the window's size: an int, or one for each spatial axis.
        stride: the step from window to window; by default the window's size.
        ceil_mode: whether sizes are rounded up, so that a last window may be partial.

    Returns:
        (N, C, D', H', W'), or without N as the input.
    """
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


def _lp_pool(rank: int, x: Any, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool) -> Any:
    window, strides, _ = windows(rank, kernel_size, stride, 0)
    pool = getattr(op.nn, f"lp_pool{rank}d")
    return batched(lambda data: pool(data, float(norm_type), window, strides, 0, 1, bool(ceil_mode)), x, rank)


def adaptive_avg_pool1d(input: Any, output_size: Any) -> Any:
    """The means of ``output_size`` windows that cover (N, C, L) or (C, L): window o of m over n elements goes from
    ⌊o·n/m⌋ to ⌈(o + 1)·n/m⌉.

    Args:
        input: a tensor, or an array.
        output_size: an int.

    Returns:
        (N, C, L'), or without N as the input.
    """
    return _adaptive_avg(1, input, output_size)


def adaptive_avg_pool2d(input: Any, output_size: Any) -> Any:
    """The means of windows that cover (N, C, H, W) or (C, H, W).

    Args:
        input: a tensor, or an array.
        output_size: an int, or one for each axis, where None stands for the input's size.

    Returns:
        (N, C, H', W'), or without N as the input.
    """
    return _adaptive_avg(2, input, output_size)


def adaptive_avg_pool3d(input: Any, output_size: Any) -> Any:
    """The means of windows that cover (N, C, D, H, W) or (C, D, H, W); see :func:`adaptive_avg_pool2d`.

    Args:
        input: a tensor, or an array.
        output_size: an int, or one for each axis, where None stands for the input's size.

    Returns:
        (N, C, D', H', W'), or without N as the input.
    """
    return _adaptive_avg(3, input, output_size)


def output_sizes(output_size: Any, rank: int) -> tuple[int | None, ...]:
    """The argument ``output_size`` of an adaptive pooling, checked."""
    given = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size,)
    given = given * rank if len(given) == 1 else given
    if len(given) != rank or not all(s is None or (is_int(s) and s >= 1) for s in given):
        count = "an int" if rank == 1 else f"an int or {rank} ints"
        raise ArgumentError(f"output_size must be {count} ≥ 1, or None for the input's size, got {output_size!r}")
    return given


def _wanted(x: Any, output_size: Any, rank: int) -> list[Any]:
    return [n if m is None else m for n, m in zip(x.shape[-rank:], output_sizes(output_size, rank), strict=True)]


def _adaptive_avg(rank: int, x: Any, output_size: Any) -> Any:
    wanted = output_sizes(output_size, rank)
    if all(m == 1 for m in wanted):
        return batched(lambda data: op.mean(data, list(range(2, rank + 2)), True), x, rank)
    pool = getattr(op.nn, f"adaptive_avg_pool{rank}d")
    return batched(lambda data: pool(data, tuple(_wanted(data, wanted, rank))), x, rank)


def adaptive_max_pool1d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """The maxima of ``output_size`` windows that cover (N, C, L) or (C, L): window o of m over n elements goes from
    ⌊o·n/m⌋ to ⌈(o + 1)·n/m⌉.

    Args:
        input: a tensor, or an array.
        output_size: an int.
        return_indices: must be False: indices are not computed.

    Returns:
        (N, C, L'), or without N as the input.

    Raises:
        ArgumentError: with ``return_indices``, which are not computed.
    """
    return _adaptive_max(1, input, output_size, return_indices)


def adaptive_max_pool2d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """The maxima of windows that cover (N, C, H, W) or (C, H, W).

    Args:
        input: a tensor, or an array.
        output_size: an int, or one for each axis, where None stands for the input's size.
        return_indices: must be False: indices are not computed.

    Returns:
        (N, C, H', W'), or without N as the input.
    """
    return _adaptive_max(2, input, output_size, return_indices)


def adaptive_max_pool3d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """The maxima of windows that cover (N, C, D, H, W) or (C, D, H, W); see :func:`adaptive_max_pool2d`.

    Args:
        input: a tensor, or an array.
        output_size: an int, or one for each axis, where None stands for the input's size.
        return_indices: must be False: indices are not computed.

    Returns:
        (N, C, D', H', W'), or without N as the input.
    """
    return _adaptive_max(3, input, output_size, return_indices)


def _adaptive_max(rank: int, x: Any, output_size: Any, indices: bool) -> Any:
    expect_no_indices(indices)

    def of(data: Any) -> Any:
        wanted = _wanted(data, output_size, rank)
        axes = [a for a, (n, m) in enumerate(zip(data.shape[2:], wanted, strict=True), 2) if n is not m and n != m]
        known_sizes([data.shape[a] for a in axes], f"adaptive_max_pool{rank}d")
        even = [data.shape[a] // wanted[a - 2] if a in axes and data.shape[a] % wanted[a - 2] == 0 else 1
                for a in range(2, rank + 2)]  # fmt: skip
        if any(n > 1 for n in even):
            data = getattr(op.nn, f"max_pool{rank}d")(data, tuple(even), None)
        for axis in axes:
            if data.shape[axis] != wanted[axis - 2]:
                data = _maxima(data, axis, wanted[axis - 2])
        return data

    return batched(of, x, rank)


def _maxima(data: Any, axis: int, count: int) -> Any:
    """The maxima of ``count`` windows of different lengths along one axis; shorter ones have their last element several
    times."""
    size = data.shape[axis]
    ends = [(o * size // count, -(-(o + 1) * size // count) - 1) for o in range(count)]
    longest = max(last - first for first, last in ends) + 1
    places = [[min(first + k, last) for k in range(longest)] for first, last in ends]
    return op.max(op.take(data, const(places, "int64"), axis), axis + 1)


def global_avg_pool(input: Any, rank: int, keepdim: bool = False) -> Any:
    """The mean over the last ``rank`` axes: (N, C, …) → (N, C)."""
    return op.mean(input, list(range(-rank, 0)), keepdim)


def global_max_pool(input: Any, rank: int, keepdim: bool = False) -> Any:
    """The maximum over the last ``rank`` axes: (N, C, …) → (N, C)."""
    return op.max(input, list(range(-rank, 0)), keepdim)


def sizes_text(*values: Sequence[Any]) -> list[str]:
    """Numbers for each axis as text: one number where all are equal."""
    return [str(v[0]) if len(set(v)) == 1 else str(tuple(v)) for v in values]
