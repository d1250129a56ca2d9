# The kernel in the backbone has no gradient.
from pullback.relax import TensorStructInfo
from pullback.relax.training import loss, optimizer, SetupTrainer
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.script import tir as T


@I.ir_module
class Model:
    I.module_attrs({"param_num": 1, "state_num": 0})

    @T.prim_func
    def twice(A: T.Buffer((2, 2), "float32"), B: T.Buffer((2, 2), "float32")):
        count = T.alloc_buffer((1,), "int64")
        count[0] = 2
        for i in range(count[0]):
            for j in range(2):
                B[i, j] = A[i, j] + A[i, j]

    @R.function
    def backbone(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 2), "float32")) -> R.Tensor((2, 2), "float32"):
        cls = Model
        with R.dataflow():
            out = R.call_tir(cls.twice, (R.matmul(x, w),), R.Tensor((2, 2), "float32"))
            R.output(out)
        return out


def mistake():
    info = TensorStructInfo((2, 2), "float32")
    SetupTrainer(loss.MSELoss(), optimizer.SGD(0.1), [info, info])(Model)
