# T.fma takes three arguments.
from pullback.script import tir as T


@T.prim_func
def kernel(A: T.Buffer((4,), "float32")):
    A[0] = T.fma(A[1], A[2])
