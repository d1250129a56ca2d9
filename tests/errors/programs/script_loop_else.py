# A loop has no else.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool"), xs: R.Tensor((5, 2, 3), "float32")):
    for row in xs:
        x = R.add(x, row)
    else:
        x = R.exp(x)
    return x
