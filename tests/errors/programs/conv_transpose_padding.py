# The padding of a transposed convolution is cut off: nothing is left.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 4, 8, 8), "float32"), w: R.Tensor((4, 6, 3, 3), "float32")):
    y = R.nn.conv2d_transpose(x, w, padding=5)
    return y
