# The function in the module has no decorator.
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    def main(x: R.Tensor((2, 3), "float32")):
        return x
