# The backbone returns its state alone.
from pullback.relax import TensorStructInfo
from pullback.relax.training import loss, optimizer, SetupTrainer
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    I.module_attrs({"param_num": 1, "state_num": 1})

    @R.function
    def backbone(
        x: R.Tensor((4, 3), "float32"), w: R.Tensor((3, 2), "float32"), seen: R.Tensor((2,), "float32")
    ) -> R.Tuple(R.Tensor((2,), "float32")):
        return (R.sum(R.add(R.matmul(x, w), seen), axis=0),)


def mistake():
    info = TensorStructInfo((4, 2), "float32")
    SetupTrainer(loss.MSELoss(), optimizer.SGD(0.1), [info, info])(Model)
