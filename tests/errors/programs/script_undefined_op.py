# There is no R.reluu.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    y = R.nn.reluu(x)
    return y
