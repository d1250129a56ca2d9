# The exponential of a tuple.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    y = R.exp((x, x))
    return y
