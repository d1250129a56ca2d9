# The parameter i is an integer.
from pullback.relax.transform import Gradient
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), i: R.Tensor((2,), "int64")) -> R.Tensor((), "float32"):
        y = R.take(x, i, axis=0)
        z = R.sum(y)
        return z


def mistake():
    Gradient("main")(Model)
