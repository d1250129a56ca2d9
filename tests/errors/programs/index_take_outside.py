# Row 5 of two rows.
import numpy as np

import pullback
from pullback.relax import VirtualMachine
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), i: R.Tensor((1,), "int64")):
    y = R.take(x, i, axis=0)
    return y


def mistake():
    run = VirtualMachine(pullback.compile(main))["main"]
    run(np.zeros((2, 3), "float32"), np.array([5]))
