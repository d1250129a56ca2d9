# The backbone is a kernel of the loop IR.
from pullback.relax import TensorStructInfo
from pullback.relax.training import loss, optimizer, SetupTrainer
from pullback.script import ir as I
from pullback.script import tir as T


@I.ir_module
class Model:
    I.module_attrs({"param_num": 1, "state_num": 0})

    @T.prim_func
    def backbone(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i]


def mistake():
    info = TensorStructInfo((4,), "float32")
    SetupTrainer(loss.MSELoss(), optimizer.SGD(0.1), [info, info])(Model)
