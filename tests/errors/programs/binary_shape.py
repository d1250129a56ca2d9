# The shapes do not broadcast.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 4), "float32")):
    z = R.add(x, y)
    return z
