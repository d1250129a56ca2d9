# compile takes a module, not a class without @I.ir_module.
import pullback
from pullback.script import relax as R


class Model:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        return x


def mistake():
    pullback.compile(Model)
