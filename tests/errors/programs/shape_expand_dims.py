# The axis lies outside.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 5), "float32")):
    y = R.expand_dims(x, axis=4)
    return y
