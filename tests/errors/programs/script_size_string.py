# The size string is no expression.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor(("n +", 3), "float32")):
    return x
