# Two axes need four widths.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    y = R.nn.pad(x, (1, 1))
    return y
