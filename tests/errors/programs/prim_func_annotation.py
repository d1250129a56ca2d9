# A parameter of a loop function is a buffer or a scalar.
from pullback.script import relax as R
from pullback.script import tir as T


@T.prim_func
def kernel(A: R.Tensor((4,), "float32")):
    A[0] = 1.0
