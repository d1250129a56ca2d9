# A depth is a number of calls.
import numpy as np

import pullback
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    @R.function
    def power(n: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        R.func_attr({"max_depth": 0})
        cls = Model
        if n > 0:
            y = cls.power(n - 1) * 2
        else:
            y = R.const(1)
        return y


def mistake():
    pullback.compile(Model)["power"](np.array(3))
