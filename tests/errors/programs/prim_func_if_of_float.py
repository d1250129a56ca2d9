# The condition of an if is a bool.
from pullback.script import tir as T


@T.prim_func
def kernel(A: T.Buffer((4,), "float32")):
    if A[0]:
        A[1] = 1.0
