# What is unboxed is not what was boxed.
import numpy as np

import pullback
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((3,), "float32")) -> R.Tensor((300,), "float32"):
        h = R.box([x])
        values = R.unbox(h, (R.Tensor((300,), "float32"),))
        return values[0]


def mistake():
    pullback.compile(Model)["main"](np.ones(3, np.float32))
