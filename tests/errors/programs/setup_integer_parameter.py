# With param_num 2, the integer i counts as a parameter.
from pullback.relax import TensorStructInfo
from pullback.relax.training import loss, optimizer, SetupTrainer
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    I.module_attrs({"param_num": 2, "state_num": 0})

    @R.function
    def backbone(i: R.Tensor((4,), "int64"), w: R.Tensor((3, 2), "float32")) -> R.Tensor((4, 2), "float32"):
        return R.take(w, i, axis=0)


def mistake():
    info = TensorStructInfo((4, 2), "float32")
    SetupTrainer(loss.MSELoss(), optimizer.SGD(0.1), [info, info])(Model)
