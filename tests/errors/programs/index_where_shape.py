# The shapes do not broadcast.
from pullback.script import relax as R


@R.function
def main(c: R.Tensor((2, 3), "bool"), x: R.Tensor((2, 4), "float32")):
    y = R.where(c, x, x)
    return y
