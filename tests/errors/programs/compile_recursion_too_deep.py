# The function calls itself more often than is allowed.
import numpy as np

import pullback
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    @R.function
    def half(x: R.Tensor((), "float64")) -> R.Tensor((), "float64"):
        R.func_attr({"max_depth": 20})
        cls = Model
        if x > R.const(0.0, "float64"):
            y = cls.half(x * R.const(0.5, "float64")) + x
        else:
            y = x
        return y


def mistake():
    pullback.compile(Model)["half"](np.array(1.0))
