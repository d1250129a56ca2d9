# Data and weight have different dtypes.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 4, 8, 8), "float32"), w: R.Tensor((6, 4, 3, 3), "float64")):
    y = R.nn.conv2d(x, w)
    return y
