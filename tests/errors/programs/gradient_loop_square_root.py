# The square root of a number of steps that only running tells.
from pullback.relax.transform import Gradient
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((), "float32")) -> R.Tensor((), "float32"):
        while x > 0.1:
            R.loop_attr({"checkpoint_every": True})
            x = R.sin(x) * 0.5
        return x


def mistake():
    Gradient("main")(Model)
