# The module lost the function that main calls.
import pullback
from pullback.ir import IRModule
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    @R.function
    def helper(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        return R.exp(x)

    @R.function
    def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        cls = Model
        y = cls.helper(x)
        return y


def mistake():
    pullback.compile(IRModule({"main": Model["main"]}))
