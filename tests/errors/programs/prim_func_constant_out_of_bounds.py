# The index 4 lies outside the buffer.
import pullback
from pullback.ir import IRModule
from pullback.script import tir as T


@T.prim_func
def kernel(A: T.Buffer((4,), "float32")):
    A[4] = 1.0


def mistake():
    module = IRModule({"kernel": kernel})
    pullback.compile(module)
