# A tensor is no handle.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((3,), "float32")):
    values = R.unbox(x, (R.Tensor((3,), "float32"),))
    return values[0]
