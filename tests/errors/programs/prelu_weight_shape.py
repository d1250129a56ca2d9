# One weight, or one for each channel.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((2,), "float32")):
    y = R.nn.prelu(x, w)
    return y
