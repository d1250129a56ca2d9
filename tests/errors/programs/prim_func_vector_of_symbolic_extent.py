# An unrolled loop has a constant extent.
from pullback.script import tir as T


@T.prim_func
def kernel(A: T.Buffer(("n",), "float32"), n: T.int64):
    for i in T.unrolled(n):
        A[i] = 1.0
