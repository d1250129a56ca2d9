# (3.5) is no tuple.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((3.5), "float32")):
    return x
