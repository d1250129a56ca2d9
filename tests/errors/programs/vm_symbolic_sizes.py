# n is 2 in x and 3 in y.
import numpy as np

import pullback
from pullback.relax import VirtualMachine
from pullback.script import relax as R


@R.function
def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n", 4), "float32")):
    z = R.add(x, y)
    return z


def mistake():
    VirtualMachine(pullback.compile(main))["main"](np.zeros((2, 4), "float32"), np.zeros((3, 4), "float32"))
