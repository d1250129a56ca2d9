# Both ways through the function call it again.
import numpy as np

import pullback
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    @R.function
    def power(n: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        cls = Model
        if n > 0:
            y = cls.power(n - 1) * 2
        else:
            y = cls.power(n + 1) * 3
        return y


def mistake():
    pullback.compile(Model)["power"](np.array(3))
