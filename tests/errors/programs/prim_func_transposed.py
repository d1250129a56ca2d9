# The loops go over rows and columns of A, B is transposed.
import pullback
from pullback.script import ir as I
from pullback.script import tir as T


@I.ir_module
class Model:
    @T.prim_func
    def copy(A: T.Buffer((2, 3), "float32"), B: T.Buffer((3, 2), "float32")):
        for i, j in T.grid(2, 3):
            B[i, j] = A[i, j]


def mistake():
    pullback.compile(Model)
