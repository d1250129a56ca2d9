# begin has one entry for each axis.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 5), "float32")):
    y = R.strided_slice(x, axes=0, begin=0, end=1)
    return y
