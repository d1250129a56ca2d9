# R.exp is an op of the graph.
from pullback.script import relax as R
from pullback.script import tir as T


@T.prim_func
def kernel(A: T.Buffer((4,), "float32")):
    A[0] = R.exp(A[1])
