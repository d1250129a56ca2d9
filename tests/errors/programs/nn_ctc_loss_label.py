# The second row has the blank among its labels.
import numpy as np

import pullback
from pullback.relax import VirtualMachine
from pullback.script import relax as R


@R.function
def main(
    x: R.Tensor((4, 2, 3), "float32"),
    labels: R.Tensor((2, 2), "int64"),
    lengths: R.Tensor((2,), "int64"),
    counts: R.Tensor((2,), "int64"),
):
    y = R.nn.ctc_loss(R.nn.log_softmax(x), labels, lengths, counts)
    return y


def mistake():
    run = VirtualMachine(pullback.compile(main))["main"]
    run(np.zeros((4, 2, 3), "float32"), np.array([[1, 2], [0, 1]]), np.array([4, 4]), np.array([2, 2]))
