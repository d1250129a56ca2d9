# The fill value is one number.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2,), "float32")):
    y = R.full((3, 2), x)
    return y
