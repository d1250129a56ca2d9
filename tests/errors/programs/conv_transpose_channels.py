# The weight of a transposed convolution has its inputs first.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 4, 8, 8), "float32"), w: R.Tensor((6, 4, 3, 3), "float32")):
    y = R.nn.conv2d_transpose(x, w)
    return y
