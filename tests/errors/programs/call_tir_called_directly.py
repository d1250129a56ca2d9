# A kernel is called by R.call_tir.
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.script import tir as T


@I.ir_module
class Model:
    @T.prim_func
    def twice(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i] + A[i]

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = Model
        y = cls.twice(x)
        return y
