"""Which outputs may be written over which inputs: the proof against an enumeration, and both against known answers."""

from __future__ import annotations

import numpy as np
import pytest

from pullback import tir
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


def drawn(seed: int):
    """A kernel of two loops around two nests, which read one element of A and write one of B: rows of 12 elements."""
    rng = np.random.default_rng(seed)
    a, b = tir.Buffer("A", (5, 12)), tir.Buffer("B", (5, 12))
    extents = [int(n) for n in rng.integers(2, 5, 2)]

    def index(outer, inner, inner_extent: int, size: int):
        """An index below ``size``, of digits of the outer loops and of the inner one."""
        terms = [*zip(outer, extents, strict=True), (inner, inner_extent)]
        result, room = tir.as_expr(int(rng.integers(0, 3))), size - 3
        for var, extent in terms:
            kind, factor = int(rng.integers(4)), int(rng.integers(1, 4))
            digit, count = [(var, extent), (var // 2, -(-extent // 2)), (var % 2, min(2, extent)), (None, 1)][kind]
            if digit is not None and factor * (count - 1) <= room:
                result, room = result + digit * factor, room - factor * (count - 1)
        return result

    def body(i, j):
        count = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        one, other = tir.Var("k"), tir.Var("l")
        rows = (
            [i % 5, i % 5]
            if rng.random() < 0.5
            else [index((i, j), one, count[0], 5), index((i, j), other, count[1], 5)]
        )
        read = a[rows[0], index((i, j), one, count[0], 12)]
        s = tir.Buffer("s", (1,), scope="local")
        first = tir.For(one, tir.as_expr(count[0]), tir.store(s, 0, read))
        second = tir.For(
            other, tir.as_expr(count[1]), tir.BufferStore(b, s[0], (rows[1], index((i, j), other, count[1], 12)))
        )
        return tir.Allocate(s, tir.seq(*((first, second) if rng.random() < 0.8 else (second, first))))

    kinds = [str(rng.choice(["serial", "parallel"])) for _ in range(2)]
    loops = tir.loop("i", extents[0], lambda i: tir.loop("j", extents[1], lambda j: body(i, j), kinds[1]), kinds[0])
    return tir.PrimFunc("k", (a, b), loops)


def test_what_is_proven_is_so():
    """Of random kernels: never proven where going through all iterations finds a read after a store."""
    proven = refuted = 0
    for seed in range(600):
        function = drawn(seed)
        a, b = function.buffers
        is_proven, is_so = may_share(function, a, b), reads_come_first(share(function, "shared", {b: a}), a)
        assert is_so or not is_proven, seed
        proven, refuted = proven + is_proven, refuted + (not is_so)
    assert min(proven, refuted) > 60, (proven, refuted)
