# The adjoint is not of the shape of the pooling's result.
from pullback.script import relax as R


@R.function
def main(dy: R.Tensor((2, 4, 8, 8), "float32"), chosen: R.Tensor((2, 4, 4, 4), "uint8")):
    y = R.grad.max_pool2d(dy, chosen, size=(8, 8), pool_size=2, strides=2)
    return y
