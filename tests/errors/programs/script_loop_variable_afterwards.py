# The number of a step is the loop's own.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool"), xs: R.Tensor((5, 2, 3), "float32")):
    y = x
    for i in R.range(3):
        y = R.exp(y)
    return (y, i)
