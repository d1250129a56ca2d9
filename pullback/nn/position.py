"""Where in a sequence an element stands: encodings that are added, and rotations of queries and keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, ShapeError
from pullback.nn.dropout import Dropout
from pullback.nn.init import Normal
from pullback.nn.module import Module
from pullback.nn.parameter import Buffer, Parameter
from pullback.relax import op
from pullback.relax.struct_info import format_shape

__all__ = ["LearnedPositionalEncoding", "RotaryEmbedding", "SinusoidalPositionalEncoding"]


class _Encoding(Module):
    """x + the first rows of a table, one for each place."""

    def __init__(self, num_positions: int, embedding_dim: int, dropout: float, batch_first: bool) -> None:
        self.num_positions, self.embedding_dim, self.batch_first = num_positions, embedding_dim, batch_first
        self.dropout = Dropout(dropout)

    def _table(self) -> Any:
        raise NotImplementedError

    def forward(self, input: Any) -> Any:
        """(N, L, embedding_dim), or without ``batch_first`` (L, N, embedding_dim), or (L, embedding_dim)."""
        rank = len(input.shape)
        if rank not in (2, 3) or input.shape[-1] != self.embedding_dim:
            axes = "N, length" if self.batch_first else "length, N"
            size = self.embedding_dim
            raise ShapeError(f"expected ({axes}, {size}) or (length, {size}), got {format_shape(input.shape)}")
        rows = _first_rows(self._table(), input.shape[1 if self.batch_first and rank == 3 else 0])
        rows = rows if self.batch_first or rank == 2 else op.expand_dims(rows, 1)
        return self.dropout(input + (rows if rows.dtype == input.dtype else op.astype(rows, input.dtype)))

    def extra_repr(self) -> str:
        return f"{self.num_positions}, {self.embedding_dim}"


class SinusoidalPositionalEncoding(_Encoding):
    """x + PE, with PE[t, 2k] = sin(t / 10000^(2k/d)) and PE[t, 2k+1] = cos(t / 10000^(2k/d)), d = ``embedding_dim``.

    >>> self.position = nn.SinusoidalPositionalEncoding(64)      # x: (N, L, 64)

    Args:
        embedding_dim: size of the last axis.
        max_len: the longest sequence. No parameters, and nothing in the state dict; ``base`` stands for 10000. Vaswani
            et al., Attention Is All You Need, 2017, section 3.5.
        dropout: the probability of an element to be dropped in steps.
        base: stands for 10000.
        batch_first: whether inputs and results are (N, L, …) rather than (L, N, …).
    """

    def __init__(
        self, embedding_dim: int, max_len: int = 5000, dropout: float = 0.0, *, base: float = 10000.0,
        batch_first: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(max_len, embedding_dim, dropout, batch_first)
        self.pe = Buffer(sinusoids(max_len, embedding_dim, base), persistent=False)

    def _table(self) -> Any:
        return self.pe


class LearnedPositionalEncoding(_Encoding):
    """x + weight[:L]: a trained row for each of ``num_positions`` places.

    Parameter: ``weight`` (num_positions, embedding_dim), normal with the standard deviation 0.02 at first, as GPT-2
    has it. Radford et al., Language Models are Unsupervised Multitask Learners, 2019.

    >>> self.position = nn.LearnedPositionalEncoding(256, 64)    # x: (N, L, 64) with L up to 256

    Args:
        num_positions: the longest sequence.
        embedding_dim: size of the last axis.
        dropout: the probability of an element to be dropped in steps.
        batch_first: whether inputs and results are (N, L, …) rather than (L, N, …).
        dtype: of the parameters, float32 by default.
    """

    def __init__(
        self, num_positions: int, embedding_dim: int, dropout: float = 0.0, *, batch_first: bool = True,
        dtype: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(num_positions, embedding_dim, dropout, batch_first)
        self.weight = Parameter((num_positions, embedding_dim), init=Normal(0.02), dtype=dtype)

    def _table(self) -> Any:
        return self.weight


class RotaryEmbedding(Module):
    """Queries or keys turned by their places: the pair (a, b) of elements k at the place t becomes (a·cos θ - b·sin θ,
    b·cos θ + a·sin θ) with θ = t / base^(2k/dim), so that products of a query and a key depend on their distance.

    >>> self.rope = nn.RotaryEmbedding(16)
    >>> F.scaled_dot_product_attention(self.rope(q), self.rope(k), v, is_causal=True)

    Args:
        dim: how many of the last axis' elements turn, an even number; the others stay.
        max_len: the longest sequence.
        base: of the formula.
        interleaved: whether element 2k is paired with 2k + 1, as in the paper, not k with k + dim/2, as in Llama.
        seq_dim: the axis of places, by default that before the last, as in (N, heads, L, size). No parameters. Su et
            al., RoFormer: Enhanced Transformer with Rotary Position Embedding, 2021.
    """

    def __init__(
        self, dim: int, max_len: int = 4096, base: float = 10000.0, *, interleaved: bool = False, seq_dim: int = -2
    ) -> None:
        if not isinstance(dim, int) or dim < 2 or dim % 2:
            raise ArgumentError(f"dim must be an even number, got {dim!r}", hint="pairs of elements turn together")
        self.dim, self.max_len, self.base, self.interleaved, self.seq_dim = dim, max_len, base, interleaved, seq_dim
        angles = np.arange(max_len)[:, None] / base ** (np.arange(0, dim, 2) / dim)
        self.cos, self.sin = (Buffer(f(angles), persistent=False, dtype="float32") for f in (np.cos, np.sin))

    def forward(self, input: Any, offset: int = 0) -> Any:
        """In the shape of ``input``; ``offset`` is the place of its first element."""
        rank = len(input.shape)
        axis = self.seq_dim + rank if self.seq_dim < 0 else self.seq_dim
        if not 0 <= axis < rank - 1:
            raise ShapeError(f"axis {self.seq_dim} of {format_shape(input.shape)} is no axis of places before the last")
        length = input.shape[axis]
        shape = [1] * rank
        shape[axis], shape[-1] = length, self.dim // 2
        factors = []
        for table in (self.cos, self.sin):
            rows = op.reshape(_first_rows(table, length, offset), shape[axis:])
            factors.append(rows if rows.dtype == input.dtype else op.astype(rows, input.dtype))
        return op.nn.rotary_embedding(input, *factors, interleaved=self.interleaved)

    def extra_repr(self) -> str:
        return f"{self.dim}, base={self.base}, interleaved={self.interleaved}"


def sinusoids(length: int, size: int, base: float = 10000.0) -> np.ndarray:
    """sin(t / base^(2k/size)) at the places 2k, and cos at 2k + 1: float32 (length, size)."""
    angles = np.arange(length)[:, None] / base ** (np.arange(0, size, 2) / size)
    table = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(length, -1)
    return table[:, :size].astype(np.float32)


def _first_rows(table: Any, length: Any, offset: int = 0) -> Any:
    """So many rows of a table; a ShapeError where it has fewer."""
    rows = table.shape[0]
    if not isinstance(length, int):
        return op.take(table, op.arange(length) + offset, 0)
    if offset < 0 or offset + length > rows:
        places = f"places {offset} to {offset + length - 1}" if offset else f"{length} places"
        raise ShapeError(f"the sequence has {places}, the table {rows}", hint="make the table longer")
    return table[offset : offset + length]
