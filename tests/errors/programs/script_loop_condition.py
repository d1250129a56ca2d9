# The condition of a while is one bool.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool"), xs: R.Tensor((5, 2, 3), "float32")):
    while x > 0.0:
        x = R.subtract(x, R.const(1.0))
    return x
