# There is no dtype float31.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float31")):
    return x
