# The options of a loop are the first line of its body.
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool"), xs: R.Tensor((5, 2, 3), "float32")):
    while R.sum(x) > 0.0:
        x = R.subtract(x, R.const(1.0))
        R.loop_attr({"max_steps": 3})
    return x
