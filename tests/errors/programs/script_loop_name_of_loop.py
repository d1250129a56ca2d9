# A loop may take no step, then y has no value.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool"), xs: R.Tensor((5, 2, 3), "float32")):
    for _ in R.range(3):
        y = R.exp(x)
    return y
