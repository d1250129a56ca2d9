# A module holds functions, not statements.
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    weights = 3

    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        return x
