# A clip without a lower bound.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    y = R.clip(x, max=1.0)
    return y
