# Parameters have no default values.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((), "float32") = 1.0):
    return R.add(x, y)
