# Three targets for two rows.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), t: R.Tensor((3,), "int64")):
    y = R.nn.nll_loss(x, t)
    return y
