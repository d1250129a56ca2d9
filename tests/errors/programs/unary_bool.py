# The absolute value of bools.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "bool")):
    y = R.abs(x)
    return y
