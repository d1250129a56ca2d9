# A loss does not broadcast.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), t: R.Tensor((3,), "float32")):
    y = R.nn.huber_loss(x, t)
    return y
