# A loop gives one name a number.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool"), xs: R.Tensor((5, 2, 3), "float32")):
    for i, j in R.range(3):
        x = R.exp(x)
    return x
