# The kernel lies in memory as HWIO, the layout says OIHW.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 8, 8, 4), "float32"), w: R.Tensor((3, 3, 4, 6), "float32")):
    y = R.nn.conv2d(x, w, data_layout="NHWC")
    return y
