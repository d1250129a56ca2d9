# Predictions have a class axis.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((), "float32"), t: R.Tensor((), "int64")):
    y = R.nn.nll_loss(x, t)
    return y
