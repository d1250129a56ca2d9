# A number of channels that is not known.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, "c", 8, 8), "float32"), w: R.Tensor((6, 4, 3, 3), "float32")):
    y = R.nn.conv2d(x, w)
    return y
