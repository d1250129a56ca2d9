# A loop does not break.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool"), xs: R.Tensor((5, 2, 3), "float32")):
    while c:
        x = R.exp(x)
        if R.sum(x) > 3.0:
            break
    return x
