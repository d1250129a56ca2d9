# a < b < c is two comparisons.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")):
    z = 0 < x < y
    return z
