# += gives a name a second value.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    y = R.exp(x)
    y += x
    return y
