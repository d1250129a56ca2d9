# The results of the backbone are nested.
from pullback.relax import TensorStructInfo
from pullback.relax.training import loss, optimizer, SetupTrainer
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    I.module_attrs({"param_num": 1, "state_num": 0})

    @R.function
    def backbone(x: R.Tensor((4, 3), "float32"), w: R.Tensor((3, 2), "float32")):
        y = R.matmul(x, w)
        return y, (y, y)


def mistake():
    info = TensorStructInfo((4, 2), "float32")
    SetupTrainer(loss.MSELoss(), optimizer.SGD(0.1), [info, info])(Model)
