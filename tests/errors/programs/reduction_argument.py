# The argument is called axis.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    y = R.sum(x, dim=1)
    return y
