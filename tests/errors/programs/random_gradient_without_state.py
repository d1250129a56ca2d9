# Dropout is differentiated before it has a state.
from pullback.relax.transform import Gradient
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            y = R.dropout(x, 0.5)
            out = R.sum(y)
            R.output(out)
        return out


def mistake():
    Gradient("main")(Model)
