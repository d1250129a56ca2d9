# There is no reduction "average".
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), t: R.Tensor((2,), "int64")):
    y = R.nn.nll_loss(x, t, reduction="average")
    return y
