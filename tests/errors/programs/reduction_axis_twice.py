# The axes 1 and -1 are the same.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    y = R.mean(x, axis=(1, -1))
    return y
