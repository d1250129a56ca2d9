# The module has no kernel twice.
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = Model
        y = R.call_tir(cls.twice, (x,), R.Tensor((4,), "float32"))
        return y
