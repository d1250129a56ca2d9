# A graph function holds no assertions.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    assert x.shape == (2, 3)
    return x
