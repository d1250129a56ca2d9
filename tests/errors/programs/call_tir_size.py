# The size that is passed is larger than the buffers.
import pullback
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.script import tir as T


@I.ir_module
class Model:
    @T.prim_func
    def twice(A: T.Buffer(("n",), "float32"), B: T.Buffer(("n",), "float32"), n: T.int64):
        for i in range(n):
            B[i] = A[i] + A[i]

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = Model
        y = R.call_tir(cls.twice, (x,), R.Tensor((4,), "float32"), tir_vars=R.shape([4000]))
        return y


def mistake():
    pullback.compile(Model)
