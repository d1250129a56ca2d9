# A tensor whose shape nobody knows.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor(ndim=2, dtype="float32")):
    y = R.exp(x)
    return y
