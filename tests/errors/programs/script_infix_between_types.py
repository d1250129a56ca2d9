# The product of a tensor and a tuple.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    y = x * (x, x)
    return y
