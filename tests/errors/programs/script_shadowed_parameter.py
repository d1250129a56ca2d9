# The parameter x is assigned again.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    x = R.exp(x)
    return x
