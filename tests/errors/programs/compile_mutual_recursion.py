# Two functions call each other.
import numpy as np

import pullback
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    @R.function
    def ping(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        cls = Model
        return cls.pong(x)

    @R.function
    def pong(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        cls = Model
        return cls.ping(x)


def mistake():
    pullback.compile(Model)["ping"](np.zeros((2, 3), "float32"))
