# A string is no tensor.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    y = R.add(x, "one")
    return y
