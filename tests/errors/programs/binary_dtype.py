# Nothing is promoted implicitly.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float64")):
    z = R.multiply(x, y)
    return z
