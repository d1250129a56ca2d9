# Probabilities have the predictions' shape.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), t: R.Tensor((2,), "float32")):
    y = R.nn.cross_entropy(x, t)
    return y
