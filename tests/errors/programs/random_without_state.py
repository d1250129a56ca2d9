# Dropout in a function that is compiled as it is.
import numpy as np

import pullback
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            y = R.nn.dropout(x, 0.5)
            out = R.sum(y[0])
            R.output(out)
        return out


def mistake():
    pullback.compile(Model)["main"](np.ones((2, 3), "float32"))
