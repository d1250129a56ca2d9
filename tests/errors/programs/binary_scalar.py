# A float beside integers.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "int32")):
    z = x + 0.5
    return z
