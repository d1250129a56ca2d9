# The adjoint is not of the shape of the convolution's result.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 4, 8, 8), "float32"), dy: R.Tensor((2, 6, 8, 8), "float32")):
    y = R.grad.conv2d_weight(x, dy, kernel_size=3)
    return y
