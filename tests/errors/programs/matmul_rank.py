# A scalar has no axis to contract.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((), "float32")):
    y = R.matmul(x, w)
    return y
