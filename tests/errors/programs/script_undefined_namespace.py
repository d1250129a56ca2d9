# R is used for what lies in R.nn.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    y = R.softmax(x)
    return y
