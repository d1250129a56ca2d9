# A box has something in it.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((3,), "float32")):
    h = R.box([])
    return x
