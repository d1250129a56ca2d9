# Padding is a number of zeros, "same" or "valid".
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 4, 8, 8), "float32"), w: R.Tensor((6, 4, 3, 3), "float32")):
    y = R.nn.conv2d(x, w, padding="causal")
    return y
