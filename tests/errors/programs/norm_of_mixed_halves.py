# The data is bfloat16: its scale is bfloat16 or float32, not float16.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((4, 3), "bfloat16"), g: R.Tensor((3,), "float16"), b: R.Tensor((3,), "float16")):
    y = R.nn.layer_norm(x, g, b)
    return y
