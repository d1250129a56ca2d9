# An int32 is stored in a buffer of float32.
from pullback.script import tir as T


@T.prim_func
def kernel(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "int32")):
    for i in range(4):
        A[i] = B[i]
