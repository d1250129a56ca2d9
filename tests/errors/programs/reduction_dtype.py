# The mean of integers.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "int64")):
    y = R.mean(x)
    return y
