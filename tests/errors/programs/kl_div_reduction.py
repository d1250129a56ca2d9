# Only some reductions exist.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), t: R.Tensor((2, 3), "float32")):
    y = R.nn.kl_div(x, t, "average")
    return y
