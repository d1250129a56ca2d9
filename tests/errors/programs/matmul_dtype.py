# The dtypes differ.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 4), "float16")):
    y = R.matmul(x, w)
    return y
