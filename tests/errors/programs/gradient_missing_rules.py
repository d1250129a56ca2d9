# Two kernels on the way have no gradient; the third is not on the way.
from pullback.relax.transform import Gradient
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.script import tir as T


@I.ir_module
class Model:
    @T.prim_func
    def twice(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        count = T.alloc_buffer((1,), "int64")
        count[0] = 4
        for i in range(count[0]):
            B[i] = A[i] + A[i]

    @R.function
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((4,), "float32")) -> R.Tensor((), "float32"):
        cls = Model
        with R.dataflow():
            a = R.call_tir(cls.twice, (x,), R.Tensor((4,), "float32"))
            b = R.exp(a)
            d = R.call_tir(cls.twice, (c,), R.Tensor((4,), "float32"))
            e = R.call_tir(cls.twice, (b,), R.Tensor((4,), "float32"))
            f = R.add(d, e)
            loss = R.sum(f)
            R.output(loss)
        return loss


def mistake():
    Gradient("main", Model["main"].params[0])(Model)
