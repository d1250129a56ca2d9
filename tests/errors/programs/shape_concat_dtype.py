# The dtypes differ.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "int64")):
    z = R.concat([x, y], axis=0)
    return z
