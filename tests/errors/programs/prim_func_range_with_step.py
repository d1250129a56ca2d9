# Loops step by one.
from pullback.script import tir as T


@T.prim_func
def kernel(A: T.Buffer((4,), "float32")):
    for i in range(0, 4, 2):
        A[i] = 1.0
