# A scale for each row, and the axis of columns.
from pullback.script import relax as R


def mistake():
    @R.function
    def main(x: R.Tensor((3, 6), "float32"), scale: R.Tensor((3,), "float32"), zero: R.Tensor((), "int32")):
        y = R.quantize(x, scale, zero)
        return y
