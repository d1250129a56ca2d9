# A kernel of the module is named without the module.
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.script import tir as T


@I.ir_module
class Model:
    @T.prim_func
    def twice(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in T.vectorized(8):
            y[i] = x[i] * T.float32(2)

    @R.function
    def main(x: R.Tensor((8,), "float32")):
        with R.dataflow():
            y = R.call_tir(twice, (x,), R.Tensor((8,), "float32"))  # noqa: F821
            R.output(y)
        return y
