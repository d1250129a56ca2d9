# An index is an integer.
from pullback.script import tir as T


@T.prim_func
def kernel(A: T.Buffer((4,), "float32")):
    A[1.5] = 1.0
