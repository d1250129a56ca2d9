# True is no size.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    y = R.reshape(x, (6, True))
    return y
