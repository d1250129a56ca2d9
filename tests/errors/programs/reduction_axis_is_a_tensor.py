# An axis is known when the program is compiled.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), axis: R.Tensor((), "int64")):
    y = R.sum(x, axis=axis)
    return y
