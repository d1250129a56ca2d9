# The gated linear unit halves an axis.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 5), "float32")):
    y = R.nn.glu(x)
    return y
