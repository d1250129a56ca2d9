# The annotation of y is not what R.exp gives.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    y: R.Tensor((3, 2), "float32") = R.exp(x)
    return y
