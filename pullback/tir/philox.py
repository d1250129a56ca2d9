"""Philox4x32-10: random numbers as a function of a counter and a key, without hidden state.

Salmon, Moraes, Dror & Shaw, Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011, section 3.3. The counter has four
words of 32 bits, the key two; ten rounds make four random words of them. The intrinsic ``philox4x32`` takes the number
of the word that is wanted, counter and key, all uint32, and gives the word; as a uint64, it gives the words 2n and
2n + 1 in one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.tir.expr import Var, cast, select
from pullback.tir.math import Template

INTRINSIC = "philox4x32"
WORDS = {"uint32": 4, "uint64": 2}  # random numbers that one counter gives
ROUNDS = 10
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85  # of the golden ratio, and of √3 - 1
_LOW = 0xFFFFFFFF


def rounds(counter: Sequence[Any], key: Sequence[Any]) -> tuple[Any, Any, Any, Any]:
    """The four words, in the lower halves of uint64: expressions of scalars, or arrays.

    Upper halves may hold anything, so that each round is two products of 32 bits, two shifts and four xors.
    """
    (a, b, c, d), (k, m) = counter, key
    for _ in range(ROUNDS):
        first, second = (a & _LOW) * _MULTIPLIERS[0], (c & _LOW) * _MULTIPLIERS[1]
        a, b, c, d = (second >> 32) ^ b ^ k, second, (first >> 32) ^ d ^ m, first
        k, m = k + _KEY_STEPS[0], m + _KEY_STEPS[1]
    return a, b, c, d


@functools.cache
def template(dtype: str) -> Template:
    """The intrinsic of that dtype in the loop IR's own arithmetic."""
    params = tuple(Var(name, "uint32") for name in ("word", "c0", "c1", "c2", "c3", "k0", "k1"))
    word, *rest = params
    wide = [cast("uint64", v) for v in rest]
    words = rounds(wide[:4], wide[4:])
    if dtype == "uint64":
        low, high = (select(word.equal(0), words[k], words[k + 2]) for k in (0, 1))
        return Template(params, (low & _LOW) | (high << 32))
    chosen = words[3]
    for k in (2, 1, 0):
        chosen = select(word.equal(k), words[k], chosen)
    return Template(params, cast("uint32", chosen))


def philox4x32(dtype: str, word: Any, *arguments: Any) -> np.ndarray:
    """The meaning of the intrinsic, over NumPy."""
    wide = [np.asarray(v, np.uint64) for v in arguments]
    with np.errstate(over="ignore"):
        words = rounds(wide[:4], wide[4:])
    if dtype == "uint64":
        numbers = [(words[k] & np.uint64(_LOW)) | (words[k + 1] << np.uint64(32)) for k in (0, 2)]
    else:
        numbers = [w.astype(np.uint32) for w in words]
    return np.choose(np.asarray(word), numbers)[()]
