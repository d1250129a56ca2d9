# The tuple has two items.
from pullback.script import relax as R


@R.function
def main(x: R.Tuple(R.Tensor((2,), "float32"), R.Tensor((3,), "float32"))):
    y = x[2]
    return y
