# A loop function returns nothing.
from pullback.script import tir as T


@T.prim_func
def kernel(A: T.Buffer((4,), "float32")):
    A[0] = 1.0
    return A
