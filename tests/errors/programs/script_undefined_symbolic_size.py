# The symbolic size n of the return type belongs to no parameter.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor(("n", 3), "float32"):
    return x
