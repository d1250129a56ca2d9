# A size is negative.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, -3), "float32")):
    return x
