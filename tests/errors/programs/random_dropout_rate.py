# The rate is given in percent.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    y = R.dropout(x, 50)
    return y
