# A vector has no triangle.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((3,), "float32")):
    y = R.tril(x)
    return y
