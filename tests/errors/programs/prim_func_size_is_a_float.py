# A size is no float.
from pullback.script import tir as T


@T.prim_func
def kernel(A: T.Buffer((4, 2.5), "float32")):
    A[0, 0] = 1.0
