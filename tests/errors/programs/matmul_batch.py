# The batches do not broadcast.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3, 4), "float32"), w: R.Tensor((5, 4, 3), "float32")):
    y = R.matmul(x, w)
    return y
