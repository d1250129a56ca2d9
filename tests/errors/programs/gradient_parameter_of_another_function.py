# The parameter belongs to the function other.
from pullback.relax.transform import Gradient
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((), "float32"):
        return R.sum(x)

    @R.function
    def other(x: R.Tensor((2, 3), "float32")) -> R.Tensor((), "float32"):
        return R.mean(x)


def mistake():
    Gradient("main", Model["other"].params)(Model)
