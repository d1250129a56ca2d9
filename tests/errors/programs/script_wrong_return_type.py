# The function declares another type than it returns.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float64"):
    y = R.exp(x)
    return y
