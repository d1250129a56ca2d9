"""Tables of vectors, and modules that compare vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from pullback.ir.arguments import whole
from pullback.ir.errors import ArgumentError, ShapeError
from pullback.nn import functional as F
from pullback.nn.functional.embedding import MODES, refuse
from pullback.nn.module import Module
from pullback.nn.parameter import Parameter, shape_of
from pullback.relax.training.initializers import Initializer, Normal

__all__ = ["CosineSimilarity", "Embedding", "EmbeddingBag", "PairwiseDistance"]


class _WithoutRow:
    """Another initializer's values, with zeros in one row."""

    def __init__(self, inner: Initializer, row: int) -> None:
        self.inner, self.row = inner, row

    def __call__(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        values = self.inner(generator, shape)
        values[self.row] = 0
        return values


Kind = TypeVar("Kind", bound="_Table")


class _Table(Module):
    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None, max_norm: float | None,
        scale_grad_by_freq: bool, weight: Any, dtype: str | None,
    ) -> None:  # fmt: skip
        refuse(max_norm, scale_grad_by_freq)
        shape = shape_of(num_embeddings, embedding_dim)
        if padding_idx is not None and not -num_embeddings <= whole("padding_idx", padding_idx) < num_embeddings:
            raise ArgumentError(f"padding_idx must be one of the {num_embeddings} rows, got {padding_idx!r}")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx + num_embeddings if padding_idx is not None and padding_idx < 0 else padding_idx
        init: Initializer = Normal() if padding_idx is None else _WithoutRow(Normal(), padding_idx)
        self.weight = Parameter(shape, init=init, dtype=dtype) if weight is None else Parameter(weight, dtype=dtype)
        if self.weight.shape != shape:
            raise ShapeError(f"the table must have the shape {shape}, got {self.weight.shape}")

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


def _pretrained(kind: Callable[..., Kind], embeddings: Any, freeze: bool, **options: Any) -> Kind:
    """A layer with the values of ``embeddings``."""
    given = Parameter(embeddings)
    if given.ndim != 2:
        raise ShapeError(f"embeddings must have the shape (rows, size), got {given.shape}")
    module = kind(*given.shape, _weight=given, **options)
    module.weight.requires_grad = not freeze
    return module


class Embedding(_Table):
    """A table of vectors, of which integers name rows: (*) → (*, embedding_dim).

    Parameter: ``weight`` (num_embeddings, embedding_dim), normal with the variance 1 at first. The row ``padding_idx``
    is zeros at first, and gets no gradient. ``sparse`` makes no difference. An index out of range is an error when the
    model runs.

    Args:
        num_embeddings: rows of the table: indices are in [0, num_embeddings).
        embedding_dim: columns of the table.
        padding_idx: the row that is zeros at first and gets no gradient.
        max_norm: must be None.
        norm_type: the p of the p-norm.
        scale_grad_by_freq: must be False.
        sparse: accepted as in PyTorch, without effect.
        dtype: of the parameters, float32 by default.

    Raises:
        ArgumentError: for ``max_norm`` and ``scale_grad_by_freq``.

    Examples:
        >>> nn.Embedding(100, 8)(np.array([[1, 5, 7]])).shape
        (1, 3, 8)
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Any = None, *,
        dtype: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(num_embeddings, embedding_dim, padding_idx, max_norm, scale_grad_by_freq, _weight, dtype)

    @classmethod
    def from_pretrained(
        cls, embeddings: Any, freeze: bool = True, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
    ) -> Embedding:  # fmt: skip
        """A layer with the values of ``embeddings``, (rows, size), which with ``freeze`` are not trained."""
        return _pretrained(
            cls, embeddings, freeze, padding_idx=padding_idx, max_norm=max_norm, scale_grad_by_freq=scale_grad_by_freq
        )

    def forward(self, input: Any) -> Any:
        """Integers (*) → (*, embedding_dim)."""
        return F.embedding(input, self.weight, self.padding_idx)


class EmbeddingBag(_Table):
    """Sums, means or maxima (``mode``) of rows of a table, for each bag of integers: see ``F.embedding_bag``.

    Parameter: ``weight`` (num_embeddings, embedding_dim), normal with the variance 1 at first, zeros in the row
    ``padding_idx``, whose elements do not count.

    Args:
        num_embeddings: rows of the table: indices are in [0, num_embeddings).
        embedding_dim: columns of the table.
        max_norm: must be None.
        norm_type: the p of the p-norm.
        scale_grad_by_freq: must be False.
        mode: "sum", "mean" or "max".
        sparse: accepted as in PyTorch, without effect.
        include_last_offset: whether the last offset is the number of indices.
        padding_idx: the row that is zeros at first and gets no gradient.
        dtype: of the parameters, float32 by default.

    Raises:
        ArgumentError: for an unknown mode, ``max_norm`` and ``scale_grad_by_freq``.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, _weight: Any = None,
        include_last_offset: bool = False, padding_idx: int | None = None, *, dtype: str | None = None,
    ) -> None:  # fmt: skip
        if mode not in MODES:
            raise ArgumentError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
        self.mode, self.include_last_offset = mode, include_last_offset
        super().__init__(num_embeddings, embedding_dim, padding_idx, max_norm, scale_grad_by_freq, _weight, dtype)

    @classmethod
    def from_pretrained(
        cls, embeddings: Any, freeze: bool = True, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:  # fmt: skip
        """A layer with the values of ``embeddings``, (rows, size), which with ``freeze`` are not trained."""
        return _pretrained(
            cls, embeddings, freeze, max_norm=max_norm, scale_grad_by_freq=scale_grad_by_freq, mode=mode,
            include_last_offset=include_last_offset, padding_idx=padding_idx,
        )  # fmt: skip

    def forward(self, input: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        """Integers (bags, N), or (N,) with offsets (bags,) → (bags, embedding_dim)."""
        return F.embedding_bag(
            input, self.weight, offsets, mode=self.mode, per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset, padding_idx=self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, mode={self.mode!r}"


class CosineSimilarity(Module):
    """Σ x1·x2 / (max(‖x1‖, eps)·max(‖x2‖, eps)) along the axis ``dim``.

    Args:
        dim: the axis; negative ones count from the end.
        eps: below which no norm falls.
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        self.dim, self.eps = dim, eps

    def forward(self, x1: Any, x2: Any) -> Any:
        """Two tensors that broadcast; the result lacks the axis."""
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """‖x1 - x2 + eps‖ₚ along the last axis.

    Args:
        p: of the p-norm.
        eps: what is added to each difference.
        keepdim: whether the axes that are reduced stay, with the size 1.
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Any, x2: Any) -> Any:
        """Two tensors that broadcast, (…, D) → (…)."""
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
