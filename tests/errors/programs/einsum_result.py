# The result has only letters of the operands.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    y = R.einsum([x], "ij->ik")
    return y
