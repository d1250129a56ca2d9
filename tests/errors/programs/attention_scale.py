# The scale is not a number.
from pullback.script import relax as R


@R.function
def main(
    q: R.Tensor((2, 8, 4, 16), "float32"),
    k: R.Tensor((2, 8, 4, 16), "float32"),
    v: R.Tensor((2, 8, 4, 16), "float32"),
):
    y = R.nn.attention(q, k, v, scale="sqrt")
    return y
