# The axis has two elements.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 5), "float32")):
    y = R.squeeze(x, axis=0)
    return y
