# The heads of the query cannot be divided among those of the key.
from pullback.script import relax as R


@R.function
def main(
    q: R.Tensor((2, 8, 4, 16), "float32"),
    k: R.Tensor((2, 8, 3, 16), "float32"),
    v: R.Tensor((2, 8, 3, 16), "float32"),
):
    y = R.nn.attention(q, k, v)
    return y
