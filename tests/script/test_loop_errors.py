"""Mistakes in scripts of loops: one tiny program each, with the message it gets."""

from __future__ import annotations

import pytest

from tests.script.test_errors import refuses

PROGRAMS = {
    "loop over a list": (
        """
        @T.prim_func
        def k(A: T.Buffer((4,), "float32")):
            for i in [1, 2]:
                A[i] = 0.0
        """,
        """
        a loop cannot go over list [1, 2]
          --> model.py:4:14
            for i in [1, 2]:
                     ^^^^^^
        hint: loops go over range(n), T.grid(m, n), T.parallel(n), T.vectorized(n) or T.unrolled(n)
        """,
    ),
    "loop variables": (
        """
        @T.prim_func
        def k(A: T.Buffer((4,), "float32")):
            for i, j in T.grid(2, 3, 4):
                A[i] = 0.0
        """,
        """
        3 loop variables are expected here
          --> model.py:4:9
            for i, j in T.grid(2, 3, 4):
                ^^^^
        hint: one name for each extent: for i in range(n), for i, j in T.grid(m, n)
        """,
    ),
    "a prefetch": (
        """
        @T.prim_func
        def k(A: T.Buffer((4,), "float32")):
            T.prefetch(A[0], "fetch")
        """,
        """
        T.prefetch takes an element of a buffer, then 'read' or 'write'
          --> model.py:4:5
            T.prefetch(A[0], "fetch")
            ^^^^^^^^^^^^^^^^^^^^^^^^^
        hint: write T.prefetch(A[i], "read")
        """,
    ),
    "while": (
        """
        @T.prim_func
        def k(A: T.Buffer((4,), "float32")):
            while True:
                A[0] = 0.0
        """,
        """
        a while loop cannot be used in @T.prim_func
          --> model.py:4:5
            while True:
            ^^^^^^^^^^^
        hint: loops have an extent: for i in range(n)
        """,
    ),
    "dtypes in a store": (
        """
        @T.prim_func
        def k(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "int32")):
            for i in range(4):
                A[i] = B[i]
        """,
        """
        storing int32 in A, which holds float32
          --> model.py:5:9
            A[i] = B[i]
            ^^^^^^^^^^^
        hint: convert it: T.cast("float32", value) has the buffer's dtype
        """,
    ),
    "dtypes in an operation": (
        """
        @T.prim_func
        def k(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "int32")):
            for i in range(4):
                A[i] = A[i] + B[i] * 2
        """,
        """
        add of float32 and int32: cast one side
          --> model.py:5:16
            A[i] = A[i] + B[i] * 2
                   ^^^^^^^^^^^^^^^
        hint: T.cast("float32", value) converts
        """,
    ),
    "rank of an index": (
        """
        @T.prim_func
        def k(A: T.Buffer((4,), "float32")):
            A[0, 0] = 1.0
        """,
        """
        A has rank 1, got 2 indices
          --> model.py:4:5
            A[0, 0] = 1.0
            ^^^^^^^^^^^^^
        hint: an element is read and written by one index for each axis
        """,
    ),
    "shadowed loop variable": (
        """
        @T.prim_func
        def k(A: T.Buffer((4,), "float32")):
            for i in range(4):
                for i in range(4):
                    A[i] = 0.0
        """,
        """
        'i' is assigned twice, first on line 4:
          --> model.py:4:9
            for i in range(4):
                ^
        again:
          --> model.py:5:13
            for i in range(4):
                ^
        hint: a name stands for one value: give the new one another name, such as i_1
        """,
    ),
    "a name after its scope": (
        """
        @T.prim_func
        def k(A: T.Buffer((4,), "float32")):
            for i in range(4):
                x = A[i]
            A[0] = x
        """,
        """
        'x' is not visible here: the block that assigns it has ended
          --> model.py:6:12
            A[0] = x
                   ^
        hint: a name lives until the end of its block: keep the value in a buffer that is allocated before
        """,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_message(name: str) -> None:
    refuses(*PROGRAMS[name])
