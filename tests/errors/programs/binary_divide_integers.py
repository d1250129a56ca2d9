# The quotient of integers.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "int32"), y: R.Tensor((2, 3), "int32")):
    z = R.divide(x, y)
    return z
