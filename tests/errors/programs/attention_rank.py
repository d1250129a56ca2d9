# The heads are not apart from the sizes.
from pullback.script import relax as R


@R.function
def main(
    q: R.Tensor((2, 8, 64), "float32"),
    k: R.Tensor((2, 8, 64), "float32"),
    v: R.Tensor((2, 8, 64), "float32"),
):
    y = R.nn.attention(q, k, v)
    return y
