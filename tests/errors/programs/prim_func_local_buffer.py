# A local buffer has a constant shape.
from pullback.script import tir as T


@T.prim_func
def kernel(A: T.Buffer(("n",), "float32"), n: T.int64):
    acc = T.alloc_buffer((n,), "float32", "local")
    acc[0] = A[0]
