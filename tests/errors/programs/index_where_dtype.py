# The branches differ in dtype.
from pullback.script import relax as R


@R.function
def main(c: R.Tensor((2, 3), "bool"), x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "int64")):
    z = R.where(c, x, y)
    return z
