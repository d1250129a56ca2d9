# A matrix needs an axis to take from.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), i: R.Tensor((4,), "int64")):
    y = R.take(x, i)
    return y
