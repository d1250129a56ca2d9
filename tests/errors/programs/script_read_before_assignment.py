# z is read a line too early.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    y = R.add(x, z)
    z = R.exp(x)
    return y
