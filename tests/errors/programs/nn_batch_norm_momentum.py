# momentum is a number.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((8, 3), "float32"), g: R.Tensor((3,), "float32")):
    y = R.nn.batch_norm(x, g, g, g, g, momentum="0.1")
    return y
