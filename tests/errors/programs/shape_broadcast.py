# Three does not broadcast to four.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    y = R.broadcast_to(x, (2, 4))
    return y
