# A target is a class, an integer.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), t: R.Tensor((2,), "float32")):
    y = R.nn.nll_loss(x, t)
    return y
