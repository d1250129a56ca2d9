# There is no dtype float.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    y = R.astype(x, "flaot64")
    return y
