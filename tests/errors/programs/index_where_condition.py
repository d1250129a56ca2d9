# A condition is a tensor of bools.
from pullback.script import relax as R


@R.function
def main(c: R.Tensor((2, 3), "float32"), x: R.Tensor((2, 3), "float32")):
    y = R.where(c, x, x)
    return y
