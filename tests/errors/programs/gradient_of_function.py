# A pass works on modules.
from pullback.relax.transform import Gradient
from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((), "float32"):
    return R.sum(x)


def mistake():
    Gradient("main")(main)
