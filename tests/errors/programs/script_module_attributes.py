# Module attributes are a dictionary.
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    I.module_attrs(param_num=2)

    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        return x
