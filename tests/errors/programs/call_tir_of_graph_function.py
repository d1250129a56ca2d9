# call_tir calls kernels; helper is a graph function.
import numpy as np

import pullback
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    @R.function
    def helper(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return R.exp(x)

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = Model
        y = R.call_tir(cls.helper, (x,), R.Tensor((4,), "float32"))
        return y


def mistake():
    pullback.compile(Model)["main"](np.zeros(4, "float32"))
