# The number of a diagonal is an integer.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((3, 3), "float32")):
    y = R.tril(x, 0.5)
    return y
