# An axis is an integer.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    y = R.max(x, axis="rows")
    return y
