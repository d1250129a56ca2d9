"""Pieces of slabs: each is its own, whoever asks, and the slab lives as long as any of them."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest

from pullback.ir import ArgumentError
from pullback.runtime import Tensor
from pullback.runtime.slab import _PIECES, SmallMemory


def test_no_two_pieces_share_a_byte():
    small = SmallMemory()
    pieces = [small.take() for _ in range(2 * _PIECES + 3)]
    places = sorted(p.address for p in pieces)
    assert all(b - a >= SmallMemory.limit for a, b in itertools.pairwise(places))
    assert all(p.nbytes == SmallMemory.limit and p.writable and p.address % 64 == 0 for p in pieces)
    tensors = [Tensor((16,), "int32", memory=p) for p in pieces]
    for k, t in enumerate(tensors):
        t.copyfrom(np.full(16, k, "int32"))
    assert all((t.numpy() == k).all() for k, t in enumerate(tensors))


def test_a_piece_keeps_its_slab():
    small = SmallMemory()
    kept = Tensor((16,), "float32", memory=small.take()).copyfrom(np.arange(16, dtype="float32"))
    view = np.asarray(kept)
    assert kept.is_pinned()
    for _ in range(3 * _PIECES):  # other slabs come and go
        Tensor((16,), "float32", memory=small.take()).copyfrom(np.zeros(16, "float32"))
    np.testing.assert_array_equal(view, np.arange(16))
    del view
    assert not kept.is_pinned()


def test_threads_get_pieces_of_their_own():
    small, found = SmallMemory(), []
    threads = [threading.Thread(target=lambda: found.extend(small.take() for _ in range(1500))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len({p.address for p in found}) == len(found) == 6000


def test_memory_must_have_room():
    piece = SmallMemory().take()
    assert Tensor((16,), "float32", memory=piece).nbytes == 64
    with pytest.raises(ArgumentError, match="a tensor of 68 bytes does not fit in memory of 64 bytes"):
        Tensor((17,), "float32", memory=piece)
