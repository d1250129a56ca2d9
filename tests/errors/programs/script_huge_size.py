# A size does not fit 64 bits.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2**70,), "float32")):
    return R.exp(x)
