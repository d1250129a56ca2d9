# One weight for each of three classes.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), t: R.Tensor((2,), "int64"), w: R.Tensor((2,), "float32")):
    y = R.nn.nll_loss(x, t, w)
    return y
