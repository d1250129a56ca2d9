# i + 1 reaches 4, outside A.
import pullback
from pullback.script import ir as I
from pullback.script import tir as T


@I.ir_module
class Model:
    @T.prim_func
    def shift(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i + 1]


def mistake():
    pullback.compile(Model)
