# The function reads a variable that nobody binds.
import pullback
from pullback.relax import BlockBuilder, TensorStructInfo, Var


def mistake():
    x, y = (Var(name, TensorStructInfo((2, 3), "float32")) for name in "xy")
    builder = BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(x + y))
    pullback.compile(builder.get())
