# A size is no integer.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3.5), "float32")):
    return x
