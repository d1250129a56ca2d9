# The layout lacks the channels.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 4, 8, 8), "float32")):
    y = R.nn.avg_pool2d(x, 2, layout="NHW")
    return y
