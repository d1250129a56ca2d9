"""Which outputs may be written over which inputs: the proof against an enumeration, and both against known answers."""

from __future__ import annotations

import pytest

from pullback.script import from_source
from pullback.tir.access_order import reads_come_first
from pullback.tir.in_place import may_share, share

SAFE = {
    "elementwise": """
    for i in T.parallel(4):
        for j in T.vectorized(8):
            B[i, j] = A[i, j] + 1.0
""",
    "rows are read whole before they are written": """
    for i in T.parallel(4):
        s = T.alloc_buffer((1,), "float32")
        s[0] = 0.0
        for j in range(8):
            s[0] = s[0] + A[i, j]
        for k in T.vectorized(8):
            B[i, k] = A[i, k] / s[0]
""",
    "everything is read before anything is written": """
    s = T.alloc_buffer((1,), "float32")
    s[0] = 0.0
    for i in range(4):
        for j in range(8):
            s[0] = s[0] + A[i, j]
    for i in T.parallel(4):
        for j in T.vectorized(8):
            B[i, j] = s[0]
""",
    "digits of one loop": """
    for t in T.parallel(32):
        B[t // 8, t % 8] = A[t // 8, t % 8] * 2.0
""",
    "tiles, the last one ragged": """
    for t in T.parallel(4):
        if t % 2 < 1:
            for i in T.unrolled(2):
                for j in T.vectorized(5):
                    B[t // 2 * 2 + i, t % 2 * 5 + j] = A[t // 2 * 2 + i, t % 2 * 5 + j] * 2.0
        else:
            for i in T.unrolled(2):
                for j in T.vectorized(3):
                    B[t // 2 * 2 + i, t % 2 * 5 + j] = A[t // 2 * 2 + i, t % 2 * 5 + j] * 2.0
""",
    "what a serial loop reads ahead": """
    for i in T.parallel(4):
        for b in range(6):
            B[i, b] = A[i, b] + A[i, b + 1] + A[i, b + 2]
        for k in range(2):
            B[i, 6 + k] = A[i, 6 + k]
""",
    "what it reads ahead on the way back": """
    for i in T.parallel(4):
        for b in range(6):
            B[i, 7 - b] = A[i, 7 - b] + A[i, 5 - b]
""",
    "pairs that are read ahead": """
    for i in T.parallel(4):
        for b in range(3):
            for j in T.unrolled(2):
                B[i, b * 2 + j] = A[i, b * 2 + j] + A[i, b * 2 + 2 + j]
        for j in T.unrolled(2):
            B[i, 6 + j] = A[i, 6 + j]
""",
    "blocks of rows, in each a loop of one": """
    for t in T.parallel(4):
        for i in range(1):
            if t // 2 * 3 + i * 3 < 3:
                for r in T.unrolled(3):
                    for j in T.vectorized(4):
                        B[t // 2 * 3 + i * 3 + r, t % 2 * 4 + j] = A[t // 2 * 3 + i * 3 + r, t % 2 * 4 + j] * 2.0
            else:
                for j in T.vectorized(4):
                    B[t // 2 * 3 + i * 3, t % 2 * 4 + j] = A[t // 2 * 3 + i * 3, t % 2 * 4 + j] * 2.0
""",
    "asked for before": """
    for i in T.parallel(4):
        T.prefetch(B[i, 0], "write")
        for j in T.vectorized(8):
            B[i, j] = A[i, j] + 1.0
""",
    "in the last of several rounds": """
    for i in T.parallel(4):
        s = T.alloc_buffer((8,), "float32")
        for turn in range(3):
            if turn == 2:
                for j in T.vectorized(8):
                    B[i, j] = A[i, j] + s[j]
            else:
                for j in T.vectorized(8):
                    s[j] = T.cast("float32", turn)
""",
    "a rest after the whole rows": """
    for i in T.parallel(3):
        for j in T.vectorized(8):
            B[i, j] = A[i, j] * 2.0
    for j in T.vectorized(8):
        B[3, j] = A[3, j] * 2.0
""",
}
UNSAFE = {
    "a rest that reads what was written before": """
    for i in T.parallel(3):
        for j in T.vectorized(8):
            B[i, j] = A[i, j] * 2.0
    for j in T.vectorized(8):
        B[3, j] = A[2, j] * 2.0
""",
    "transposed": """
    for i in T.parallel(4):
        for j in T.vectorized(8):
            B[i, j] = A[(i * 8 + j) % 4, (i * 8 + j) // 4]
""",
    "the neighbour": """
    for i in T.parallel(4):
        for j in range(7):
            B[i, j + 1] = A[i, j]
        B[i, 0] = 0.0
""",
    "every row reads the first": """
    for i in T.parallel(4):
        for j in T.vectorized(8):
            B[i, j] = A[i, j] + A[0, j]
""",
    "read after it was written": """
    for i in T.parallel(4):
        for j in range(8):
            B[i, j] = 1.0
        for k in range(8):
            C[i, k] = A[i, k]
""",
    "a lane that another lane has written": """
    for i in T.parallel(4):
        for j in T.vectorized(8):
            B[i, j] = A[i, 7 - j]
""",
    "what a serial loop wrote before": """
    for i in T.parallel(4):
        for b in range(6):
            B[i, b + 2] = A[i, b] + 1.0
""",
    "what it wrote before on the way back": """
    for i in T.parallel(4):
        for b in range(6):
            B[i, 5 - b] = A[i, 7 - b] + 1.0
""",
    "what is read ahead while it is written": """
    for i in range(4):
        for b in T.parallel(6):
            B[i, b] = A[i, b + 2] + 1.0
""",
    "what is read ahead is another task's": """
    for t in T.parallel(2):
        for b in range(3):
            B[0, t * 3 + b] = A[0, t * 3 + b + 1] + 1.0
""",
    "what it wrote of a pair before": """
    for i in T.parallel(4):
        for b in range(6):
            for k in T.unrolled(2):
                B[i, b + k] = A[i, b] + 1.0
""",
    "pairs of which the inner loop is the outer one": """
    for j in range(2):
        for b in range(3):
            B[0, b * 2 + j] = A[0, b * 2 + 1 + j] + 1.0
""",
    "the same row again and again": """
    for t in range(2):
        for i in T.parallel(4):
            for j in T.vectorized(8):
                B[i, j] = A[i, j] + 1.0
""",
    "in every round but one": """
    for turn in range(3):
        if turn == 2:
            for j in T.vectorized(8):
                C[0, j] = 0.0
        else:
            for i in T.parallel(4):
                for j in T.vectorized(8):
                    B[i, j] = A[i, j] + 1.0
""",
    "tiles that overlap": """
    for t in T.parallel(2):
        for i in range(4):
            for j in T.vectorized(5):
                B[i, t * 3 + j] = A[i, t * 3 + j] + 1.0
""",
}


def kernel(body: str):
    head = """
from pullback.script import tir as T
@T.prim_func
def k(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32"), C: T.Buffer((4, 8), "float32")):
"""
    return from_source(head + body)


@pytest.mark.parametrize("body", SAFE.values(), ids=SAFE)
def test_safe(body):
    function = kernel(body)
    a, b, _ = function.buffers
    assert may_share(function, a, b)
    assert reads_come_first(share(function, "shared", {b: a}), a)


@pytest.mark.parametrize("body", UNSAFE.values(), ids=UNSAFE)
def test_unsafe(body):
    function = kernel(body)
    a, b, _ = function.buffers
    assert not may_share(function, a, b)
    assert reads_come_first(share(function, "shared", {b: a}), a) is False


def test_only_memory_of_one_shape_and_dtype():
    function = from_source("""
from pullback.script import tir as T
@T.prim_func
def k(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "int32"), C: T.Buffer((4,), "float32")):
    for i in range(8):
        B[i] = 0
    for i in range(4):
        C[i] = A[i]
""")
    a, b, c = function.buffers
    assert not may_share(function, a, b)
    assert not may_share(function, a, c)


def test_what_depends_on_data_is_not_known():
    function = from_source("""
from pullback.script import tir as T
@T.prim_func
def k(I: T.Buffer((8,), "int64"), A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        B[i] = A[I[i]]
""")
    _, a, b = function.buffers
    assert not may_share(function, a, b)
    assert reads_come_first(share(function, "shared", {b: a}), a) is None


def test_not_what_is_never_written():
    """An empty output, for example: no store would tell which input it has replaced."""
    function = kernel("    for i in range(4):\n        C[i, 0] = A[i, 0]\n")
    a, b, _ = function.buffers
    assert not may_share(function, a, b)
