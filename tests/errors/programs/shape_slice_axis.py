# The tensor has two axes.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 5), "float32")):
    y = R.strided_slice(x, axes=[2], begin=[0], end=[1])
    return y
