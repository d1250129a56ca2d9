# A module holds functions and constants, no loops.
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    for k in range(3):
        pass

    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        return x
