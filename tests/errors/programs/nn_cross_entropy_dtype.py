# Labels have the predictions' dtype.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), t: R.Tensor((2, 3), "int64")):
    y = R.nn.cross_entropy_with_logits(x, t)
    return y
