# Tensors whose rows are read together have equally many.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool"), xs: R.Tensor((5, 2, 3), "float32")):
    for a, b in R.rows(xs, x):
        x = R.add(x, a)
    return x
