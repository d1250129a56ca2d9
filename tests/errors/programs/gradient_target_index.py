# The function has two results, 0 and 1.
from pullback.relax.transform import Gradient
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")) -> R.Tuple(R.Tensor((), "float32"), R.Tensor((), "float32")):
        a = R.sum(x)
        b = R.mean(x)
        return a, b


def mistake():
    Gradient("main", target_index=2)(Model)
