# The axis lies outside.
from pullback.script import relax as R


@R.function
def main(t: R.Tensor((2,), "int64")):
    y = R.one_hot(t, 1.0, 0.0, 10, axis=5)
    return y
