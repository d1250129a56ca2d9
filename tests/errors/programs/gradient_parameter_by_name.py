# The function has no parameter z.
from pullback.relax.transform import Gradient
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((), "float32"):
        return R.sum(x)


def mistake():
    Gradient("main", require_grads=["z"])(Model)
