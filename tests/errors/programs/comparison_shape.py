# The shapes do not broadcast.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((3, 2), "float32")):
    z = R.less(x, y)
    return z
