# The parameter w has no type.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), w):
    return R.matmul(x, w)
