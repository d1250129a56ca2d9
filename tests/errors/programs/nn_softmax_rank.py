# A scalar has no axis.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((), "float32")):
    y = R.nn.log_softmax(x)
    return y
