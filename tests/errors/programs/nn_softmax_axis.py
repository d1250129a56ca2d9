# The axis lies outside.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    y = R.nn.softmax(x, axis=2)
    return y
