# A loop goes over a range.
from pullback.script import tir as T


@T.prim_func
def kernel(A: T.Buffer((4,), "float32")):
    for i in [0, 1, 2, 3]:
        A[i] = 1.0
