# keepdims is True or False.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    y = R.sum(x, axis=0, keepdims="yes")
    return y
