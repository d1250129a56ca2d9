# The gradient of a recursive function is brought over a batch, and not the function.
from pullback.relax.transform import Gradient, VMap
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    @R.function
    def power(n: R.Tensor((), "int64"), x: R.Tensor((), "float32")) -> R.Tensor((), "float32"):
        cls = Model
        if n > 0:
            y = cls.power(n - 1, x) * x
        else:
            y = R.exp(x)
        return y


def mistake():
    VMap("power_adjoint", (None, 0))(Gradient("power", "x")(Model))
