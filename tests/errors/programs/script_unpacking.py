# A tuple of two is unpacked to three names.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 4), "float32")):
    a, b, c = R.split(x, 2, axis=1)
    return a
