"""Rows of tables by their numbers, and how near vectors are to each other."""

from __future__ import annotations

from typing import Any

from pullback.ir.arguments import number
from pullback.ir.errors import ArgumentError, ShapeError
from pullback.relax import op

__all__ = ["cdist", "cosine_similarity", "embedding", "embedding_bag", "pairwise_distance"]

MODES = ("sum", "mean", "max")


def embedding(
    input: Any, weight: Any, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Any:  # fmt: skip
    """The rows of ``weight``, (rows, …), that ``input`` names, integers of any shape: (*) → (*, …).

    The row ``padding_idx`` gets no gradient. ``sparse`` makes no difference.

    Args:
        input: integers of any shape.
        weight: the table, (rows, …).
        padding_idx: the row that gets no gradient.
        max_norm: must be None.
        norm_type: the p of the p-norm.
        scale_grad_by_freq: must be False.
        sparse: accepted as in PyTorch, without effect.

    Returns:
        the rows.

    Raises:
        ArgumentError: for ``max_norm``, which changes the table in forward, and ``scale_grad_by_freq``.
    """
    refuse(max_norm, scale_grad_by_freq)
    return op.nn.embedding(input, weight, padding_idx)


def embedding_bag(
    input: Any, weight: Any, offsets: Any = None, max_norm: float | None = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, per_sample_weights: Any = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> Any:  # fmt: skip
    """Sums, means or maxima (``mode``) of rows of ``weight``, (rows, D), for each bag of integers: (bags, D).

    Args:
        input: integers: (bags, places), or all in one row, (places,), with ``offsets``.
        weight: the table, (rows, D).
        offsets: where each bag begins in a row of all, (bags,).
        max_norm: must be None.
        norm_type: the p of the p-norm.
        scale_grad_by_freq: must be False.
        mode: "sum", "mean" or "max".
        sparse: accepted as in PyTorch, without effect.
        per_sample_weights: factors of the rows, in the shape of the input, for sums.
        include_last_offset: whether the last offset is the number of indices.
        padding_idx: the row that does not count.

    Returns:
        (bags, D).
    """
    refuse(max_norm, scale_grad_by_freq)
    if mode not in MODES:
        raise ArgumentError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
    if per_sample_weights is not None and mode != "sum":
        raise ArgumentError(f'per_sample_weights are for mode "sum", got {mode!r}')
    rank = len(input.shape)
    if rank != (1 if offsets is not None else 2):
        wanted = "(N,) with offsets" if offsets is not None else "(bags, N), or (N,) with offsets"
        raise ShapeError(f"embedding_bag takes {wanted}, got {rank} axes: {input.struct_info}")
    rows = op.nn.embedding(input, weight, padding_idx)
    if per_sample_weights is not None:
        rows = rows * op.expand_dims(per_sample_weights, rank)
    counts = None
    if padding_idx is not None:
        padding = padding_idx + weight.shape[0] if padding_idx < 0 else padding_idx
        counts = op.not_equal(input, op.full((), padding, input.dtype))
    if offsets is None:
        return _of_rows(rows, counts, mode)
    return _of_segments(rows, counts, mode, offsets, include_last_offset)


def _of_rows(rows: Any, counts: Any, mode: str) -> Any:
    """Bags of one size, (bags, N, D): ``counts`` says of each element whether it counts; None of all."""
    if counts is None and rows.shape[1] != 0:
        return {"sum": op.sum, "mean": op.mean, "max": op.max}[mode](rows, 1)
    zero = op.zeros((), rows.dtype)
    number = op.sum(op.astype(counts, rows.dtype), 1, True)
    counted = op.expand_dims(counts, 2)
    if mode == "max":
        least = op.full((), float("-inf"), rows.dtype)
        return op.where(number > 0.0, op.max(op.where(counted, rows, least), 1), zero)
    total = op.sum(op.where(counted, rows, zero), 1)
    return total if mode == "sum" else total / op.maximum(number, 1.0)


def _of_segments(rows: Any, counts: Any, mode: str, offsets: Any, include_last_offset: bool) -> Any:
    """Bags one after the other, (N, D)."""
    bags = offsets.shape[0] - 1 if include_last_offset else offsets.shape[0]
    places = op.arange(rows.shape[0], dtype=offsets.dtype)
    segments = op.searchsorted(offsets, places, right=True, dtype="int64") - 1
    if counts is not None:
        segments = op.where(counts, segments, op.full((), -1, "int64"))  # outside: left out
    if mode == "sum":
        return op.segment_reduce(rows, segments, bags, "add")
    number = op.segment_reduce(op.ones_like(segments, rows.dtype), segments, bags, "add")
    number = op.expand_dims(number, 1)
    if mode == "mean":
        return op.segment_reduce(rows, segments, bags, "add") / op.maximum(number, 1.0)
    largest = op.segment_reduce(rows, segments, bags, "max")
    return op.where(number > 0.0, largest, op.zeros((), rows.dtype))


def refuse(max_norm: Any, scale_grad_by_freq: Any) -> None:
    """An ArgumentError for what a compiled table cannot do."""
    if max_norm is not None:
        raise ArgumentError(
            "max_norm is not supported: it would change a parameter in forward",
            hint="leave it out; F.normalize(rows, dim=-1) bounds the rows where they are used",
        )
    if scale_grad_by_freq:
        raise ArgumentError("scale_grad_by_freq is not supported", hint="leave it out; optim.Adam scales by itself")


def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    """Σ x1·x2 / (max(‖x1‖, eps)·max(‖x2‖, eps)) along the axis ``dim`` of the broadcast tensors.

    Args:
        x1: a tensor.
        x2: a tensor; the two broadcast.
        dim: the axis; negative ones count from the end.
        eps: below which no norm falls.

    Returns:
        a tensor without the axis.
    """
    return op.nn.cosine_similarity(x1, x2, dim, eps)


def pairwise_distance(x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Any:
    """‖x1 - x2 + eps‖ₚ along the last axis of the broadcast tensors.

    Args:
        x1: a tensor.
        x2: a tensor; the two broadcast.
        p: of the p-norm.
        eps: what is added to each difference.
        keepdim: whether the axes that are reduced stay, with the size 1.

    Returns:
        a tensor without the last axis.
    """
    return op.norm(x1 - x2 + eps, ord=number("p", p, finite=False), axis=-1, keepdims=keepdim)


def cdist(x1: Any, x2: Any, p: float = 2.0) -> Any:
    """‖x1ᵢ - x2ⱼ‖ₚ for all pairs of rows: (…, N, D), (…, M, D) → (…, N, M).

    Args:
        x1: (…, N, D).
        x2: (…, M, D).
        p: of the p-norm.

    Returns:
        (…, N, M).
    """
    return op.norm(op.expand_dims(x1, -2) - op.expand_dims(x2, -3), ord=number("p", p, finite=False), axis=-1)
