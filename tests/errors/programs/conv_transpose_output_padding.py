# As much output padding as the stride.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 4, 8, 8), "float32"), w: R.Tensor((4, 6, 3, 3), "float32")):
    y = R.nn.conv2d_transpose(x, w, strides=2, output_padding=2)
    return y
