# An index is an integer.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), i: R.Tensor((4,), "float32")):
    y = R.take(x, i, axis=0)
    return y
