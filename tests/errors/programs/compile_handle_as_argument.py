# A handle says where something lies during a call: it cannot come from outside.
import pullback
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    @R.function
    def main(h: R.Tensor((), "handle")) -> R.Tensor((3,), "float32"):
        values = R.unbox(h, (R.Tensor((3,), "float32"),))
        return values[0]


def mistake():
    pullback.compile(Model)["main"]
