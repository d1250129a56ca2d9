# gamma has the shape of the axes.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), g: R.Tensor((2,), "float32"), b: R.Tensor((3,), "float32")):
    y = R.nn.layer_norm(x, g, b, axes=-1)
    return y
