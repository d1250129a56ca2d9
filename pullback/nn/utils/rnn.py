"""Sequences of different lengths, padded to one: PyTorch's names for what recurrent layers take and give."""

from __future__ import annotations

from typing import Any, NamedTuple

from pullback.ir.errors import ArgumentError
from pullback.relax import op

__all__ = ["PackedSequence", "pack_padded_sequence", "pad_packed_sequence"]


class PackedSequence(NamedTuple):
    """Padded sequences with their lengths. Unlike PyTorch's, the data stay where they are, so nothing is sorted."""

    data: Any
    lengths: Any
    batch_first: bool = False


def pack_padded_sequence(
    input: Any, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Sequences (L, N, …), with ``batch_first`` (N, L, …), and the length of each, (N,), for a recurrent layer.

    ``enforce_sorted`` is there for PyTorch's programs: any order will do.
    """
    return PackedSequence(input, lengths, batch_first)


def pad_packed_sequence(sequence: PackedSequence, batch_first: bool = False) -> tuple[Any, Any]:
    """(data, lengths) of what a recurrent layer gave; data are 0 after the end of each sequence."""
    if not isinstance(sequence, PackedSequence):
        raise ArgumentError(
            f"pad_packed_sequence takes a packed sequence, got {type(sequence).__name__}",
            hint="a layer that gets what pack_padded_sequence gave returns one",
        )
    data, lengths, first = sequence
    if first != batch_first:
        data = op.permute_dims(data, (1, 0, *range(2, len(data.shape))))
    return data, lengths
