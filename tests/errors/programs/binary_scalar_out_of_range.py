# 300 is no int8.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "int8")):
    z = x + 300
    return z
