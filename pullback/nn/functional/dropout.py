"""Dropout: in steps of training some elements, or whole channels, are 0; ``predict`` and ``evaluate`` drop nothing.

What is dropped follows from the trainer's seed and the number of the step. With ``training=False`` nothing is ever
dropped. ``inplace`` makes no difference: values never change.
"""

from __future__ import annotations

import math
from typing import Any

from pullback.ir.errors import ArgumentError, ShapeError
from pullback.nn.functional.form import in_train_phase
from pullback.relax import op

__all__ = ["alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]

_SATURATED = -1.7580993408473766  # what selu tends to for large negative x: -1.0507 · 1.67326


def probability(p: Any) -> float:
    """A number from 0 to 1; an ArgumentError for anything else."""
    if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0 <= p <= 1:
        raise ArgumentError(f"p must be a number from 0 to 1, got {p!r}", hint="the probability of a 0, such as 0.5")
    return float(p)


def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """In steps each element is 0 with the probability p, and else x / (1 - p). Srivastava et al., Dropout: A Simple Way
    to Prevent Neural Networks from Overfitting, 2014.

    Args:
        input: a tensor, or an array.
        p: the probability of an element (or channel) to be dropped, in [0, 1].
        training: whether steps of training drop; ``predict`` never does.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.

    Returns:
        a tensor of the input's shape.
    """
    rate = probability(p)
    return op.dropout(input, p=rate) if training and rate else input


def dropout1d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """In steps each channel of each row is 0 with the probability p, and else x / (1 - p): (N, C, L) or (C, L).

    Args:
        input: a tensor, or an array.
        p: the probability of an element (or channel) to be dropped, in [0, 1].
        training: whether steps of training drop; ``predict`` never does.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.

    Returns:
        a tensor of the input's shape.
    """
    return _channels("dropout1d", input, p, training, {3: 2, 2: 1})


def dropout2d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """In steps each channel of each row is 0 with the probability p, and else x / (1 - p): (N, C, H, W), and as in
    PyTorch (N, C, L). Tompson et al., Efficient Object Localization Using Convolutional Networks, 2015.

    Args:
        input: a tensor, or an array.
        p: the probability of an element (or channel) to be dropped, in [0, 1].
        training: whether steps of training drop; ``predict`` never does.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.

    Returns:
        a tensor of the input's shape.
    """
    return _channels("dropout2d", input, p, training, {4: 2, 3: 2})


def dropout3d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """In steps each channel of each row is 0 with the probability p, and else x / (1 - p): (N, C, D, H, W) or
    (C, D, H, W).

    Args:
        input: a tensor, or an array.
        p: the probability of an element (or channel) to be dropped, in [0, 1].
        training: whether steps of training drop; ``predict`` never does.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.

    Returns:
        a tensor of the input's shape.
    """
    return _channels("dropout3d", input, p, training, {5: 2, 4: 1})


def alpha_dropout(input: Any, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
    """With ``training``, in steps each element is with the probability p the limit α = -1.7581 of selu, and all are
    scaled and moved such that mean 0 and variance 1 stay: a·x + b with a = 1/√((1 - p)·(1 + p·α²)), b = -p·a·α.
    Klambauer et al., Self-Normalizing Neural Networks, 2017.

    Args:
        input: a tensor, or an array.
        p: the probability of an element (or channel) to be dropped, in [0, 1].
        training: whether steps of training drop; ``predict`` never does.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.

    Returns:
        a tensor of the input's shape.
    """
    rate = probability(p)
    return _alpha(input, op.ones_like(input), rate) if training else input


def feature_alpha_dropout(input: Any, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
    """``alpha_dropout`` of whole channels: (N, C, …).

    Args:
        input: a tensor, or an array.
        p: the probability of an element (or channel) to be dropped, in [0, 1].
        training: whether steps of training drop; ``predict`` never does.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.

    Returns:
        a tensor of the input's shape.
    """
    rate = probability(p)
    if len(input.shape) < 2:
        raise ShapeError(f"feature_alpha_dropout takes (N, C, …), got {input.struct_info}")
    return _alpha(input, _ones_of(input, 2), rate) if training else input


def _channels(name: str, input: Any, p: float, training: bool, kept: dict[int, int]) -> Any:
    """Dropout with one draw for each place of the first axes, whose number is given by the number of all axes."""
    rate, rank = probability(p), len(input.shape)
    if rank not in kept:
        counts = " or ".join(map(str, sorted(kept)))
        raise ShapeError(f"{name} takes {counts} axes, got {rank}: {input.struct_info}")
    return input * op.dropout(_ones_of(input, kept[rank]), p=rate) if training else input


def _ones_of(input: Any, kept: int) -> Any:
    """Ones of the sizes of the first axes, and size 1 along the others."""
    axes = list(range(kept, len(input.shape)))
    return op.ones_like(op.strided_slice(input, axes, [0] * len(axes), [1] * len(axes)) if axes else input)


def _alpha(input: Any, ones: Any, p: float) -> Any:
    if p == 1:
        return in_train_phase(op.zeros_like(input), input)
    a = 1 / math.sqrt((1 - p) * (1 + p * _SATURATED**2))
    is_kept = op.dropout(ones, p=p) > 0.0
    dropped = op.full_like(input, _SATURATED * a)
    return in_train_phase(op.where(is_kept, input * a, dropped) - p * a * _SATURATED, input)
