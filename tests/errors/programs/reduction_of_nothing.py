# The largest of no elements.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((0, 3), "float32")):
    y = R.max(x, axis=0)
    return y
