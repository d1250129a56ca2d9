# A kernel of the loop IR is no graph function.
from pullback.relax.transform import Gradient
from pullback.script import ir as I
from pullback.script import tir as T


@I.ir_module
class Model:
    @T.prim_func
    def twice(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i] + A[i]


def mistake():
    Gradient("twice")(Model)
