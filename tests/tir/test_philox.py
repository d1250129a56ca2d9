"""Philox4x32-10: known answers, and a second implementation on Python's integers."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.tir import philox
from pullback.tir.interpreter import evaluate

# Counter, key and result, from the file kat_vectors of Random123, the library of the paper's authors.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def by_integers(counter: tuple[int, ...], key: tuple[int, ...]) -> list[int]:
    """The definition: high and low halves of products, in integers of any size."""
    a, b, c, d = counter
    k, m = key
    for _ in range(10):
        first, second = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (second >> 32) ^ b ^ k, second % 2**32, (first >> 32) ^ d ^ m, first % 2**32
        k, m = (k + 0x9E3779B9) % 2**32, (m + 0xBB67AE85) % 2**32
    return [a, b, c, d]


def meanings(dtype: str, words: int, counter: np.ndarray, key: np.ndarray) -> list[np.ndarray]:
    """The words by the meaning of the intrinsic, and by its expansion."""
    template = philox.template(dtype)
    arrays = [np.full(counter.shape[1:], n, np.uint32) for n in range(words)]
    by_meaning = [philox.philox4x32(dtype, n, *counter, *key) for n in arrays]
    by_expansion = [
        evaluate(template.body, dict(zip(template.params, [n, *counter, *key], strict=True))) for n in arrays
    ]
    return [np.stack(by_meaning), np.stack(by_expansion)]


@pytest.mark.parametrize("counter, key, expected", KNOWN)
def test_known_answers(counter, key, expected):
    assert by_integers(counter, key) == list(expected)
    for found in meanings("uint32", 4, np.array(counter, np.uint32), np.array(key, np.uint32)):
        assert found.dtype == np.uint32 and found.tolist() == list(expected)


def test_random_counters_and_keys():
    rng = np.random.default_rng(0)
    counter, key = rng.integers(0, 2**32, (4, 200), np.uint32), rng.integers(0, 2**32, (2, 200), np.uint32)
    columns = (tuple(map(int, column)) for column in np.concatenate([counter, key]).T)
    expected = np.array([by_integers(c[:4], c[4:]) for c in columns], np.uint32).T
    for found in meanings("uint32", 4, counter, key):
        np.testing.assert_array_equal(found, expected)
    pairs = expected.astype(np.uint64)
    pairs = pairs[::2] | pairs[1::2] << np.uint64(32)
    for found in meanings("uint64", 2, counter, key):
        np.testing.assert_array_equal(found, pairs)
