# The function gives another type than was said.
from pullback.relax import BlockBuilder, Var
from pullback.script import relax as R


def mistake():
    builder, n = BlockBuilder(), Var("n", R.Tensor((), "int64"))
    with builder.function("main", [n]):
        count = R.Tensor((), "int64")

        def power(power, n):
            return R.cond(n > 0, lambda: R.astype(power(n - 1), "float32"), lambda: R.astype(n, "float32"))

        power = R.recursive(power, (count,), count)
        builder.emit_func_output(builder.emit(power(n)))
