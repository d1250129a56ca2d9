# Nobody knows whether n and m are the same.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor(("n", 3), "float32"), y: R.Tensor(("m", 3), "float32")):
    z = R.add(x, y)
    return z
