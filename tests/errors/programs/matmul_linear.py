# The bias has the size of the inputs.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((4, 3), "float32"), b: R.Tensor((3,), "float32")):
    y = R.linear(x, w, b)
    return y
