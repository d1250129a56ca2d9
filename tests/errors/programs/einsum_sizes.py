# Axes of one letter have one size.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((4, 5), "float32")):
    y = R.einsum([x, y], "ij,jk->ik")
    return y
