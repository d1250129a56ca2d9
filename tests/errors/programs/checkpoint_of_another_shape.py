# The parameters have the same names, other shapes.
import pullback
from pullback.relax.training import loss, optimizer
from pullback.script import ir as I
from pullback.script import relax as R
from tests.errors.models import linear_trainer


@I.ir_module
class Wider:
    I.module_attrs({"param_num": 2, "state_num": 0})

    @R.function
    def backbone(
        x: R.Tensor((4, 3), "float32"), w: R.Tensor((3, 5), "float32"), b: R.Tensor((5,), "float32")
    ) -> R.Tensor((4, 5), "float32"):
        return R.add(R.matmul(x, w), b)


def setup():
    return linear_trainer()


def mistake(trainer, folder):
    wider = pullback.trainer(Wider, loss.MSELoss(), optimizer.MomentumSGD(0.1, 0.9))
    wider.save(folder / "wider.safetensors")
    trainer.load(folder / "wider.safetensors")
