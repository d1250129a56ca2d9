# The name w is misspelt.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), weight: R.Tensor((3, 4), "float32")):
    y = R.matmul(x, wieght)
    return y
