# The updated state has another shape than the state.
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
    ) -> R.Tuple(R.Tensor((4, 2), "float32"), R.Tensor((4,), "float32")):
        out = R.add(R.matmul(x, w), seen)
        return out, R.sum(out, axis=1)


def mistake():
    info = TensorStructInfo((4, 2), "float32")
    SetupTrainer(loss.MSELoss(), optimizer.SGD(0.1), [info, info])(Model)
