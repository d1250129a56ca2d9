# A sum needs two operands.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    z = R.add(x)
    return z
