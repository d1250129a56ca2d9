# The kernel takes two buffers and gives one.
import numpy as np

import pullback
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.script import tir as T


@I.ir_module
class Model:
    @T.prim_func
    def add(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
        for i in range(4):
            C[i] = A[i] + B[i]

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = Model
        y = R.call_tir(cls.add, (x,), R.Tensor((4,), "float32"))
        return y


def mistake():
    pullback.compile(Model)["main"](np.zeros(4, "float32"))
