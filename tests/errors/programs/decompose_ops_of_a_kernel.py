# Only graph functions hold ops.
from pullback import relax
from pullback.script import ir as I, tir as T


@I.ir_module
class Module:
    @T.prim_func
    def double(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            y[i] = x[i] * T.float32(2)


relax.transform.DecomposeOpsForInference("double")(Module)
