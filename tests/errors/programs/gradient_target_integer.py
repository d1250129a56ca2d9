# The result is an integer.
from pullback.relax.transform import Gradient
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((2, 3), "int64")) -> R.Tensor((), "int64"):
        return R.sum(x)


def mistake():
    Gradient("main", [])(Model)
