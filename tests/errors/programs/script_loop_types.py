# Two names change their types from step to step.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool"), xs: R.Tensor((5, 2, 3), "float32")):
    y = R.sum(x)
    k = R.const(0, "int64")
    for _ in R.range(3):
        y = R.add(y, x)
        k = R.astype(k, "float32")
    return (y, k)
