# A condition of Python is True or False.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool"), xs: R.Tensor((5, 2, 3), "float32")):
    layers = 3
    if layers:
        x = R.exp(x)
    return x
