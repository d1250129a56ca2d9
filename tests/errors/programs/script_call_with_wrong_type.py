# helper takes a tensor of another shape.
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    @R.function
    def helper(x: R.Tensor((3, 2), "float32")) -> R.Tensor((3, 2), "float32"):
        return R.exp(x)

    @R.function
    def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((3, 2), "float32"):
        cls = Model
        y = cls.helper(x)
        return y
