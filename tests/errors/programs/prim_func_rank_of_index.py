# A has one axis.
from pullback.script import tir as T


@T.prim_func
def kernel(A: T.Buffer((4,), "float32")):
    for i in range(4):
        A[i, 0] = 1.0
