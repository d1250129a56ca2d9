# A float32 is compared with an int64.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "int64")):
    z = R.equal(x, y)
    return z
