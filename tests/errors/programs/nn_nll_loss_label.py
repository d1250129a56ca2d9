# Class 3 of three, counted from 0.
import numpy as np

import pullback
from pullback.relax import VirtualMachine
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), t: R.Tensor((2,), "int64")):
    y = R.nn.nll_loss(x, t)
    return y


def mistake():
    run = VirtualMachine(pullback.compile(main))["main"]
    run(np.zeros((2, 3), "float32"), np.array([0, 3]))
