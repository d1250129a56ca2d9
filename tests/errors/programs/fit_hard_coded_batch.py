# The model reshapes to four rows, so it cannot be compiled for another number.
import numpy as np

import pullback
from pullback.relax.training import loss, optimizer
from pullback.script import ir as I
from pullback.script import relax as R
from tests.errors.models import Y


@I.ir_module
class Model:
    I.module_attrs({"param_num": 1, "state_num": 0})

    @R.function
    def backbone(x: R.Tensor((4, 3, 2), "float32"), w: R.Tensor((6, 2), "float32")) -> R.Tensor((4, 2), "float32"):
        with R.dataflow():
            flat = R.reshape(x, (4, 6))
            out = R.matmul(flat, w)
            R.output(out)
        return out


def setup():
    trainer = pullback.trainer(Model, loss.MSELoss(), optimizer.SGD(0.1))
    trainer.update(np.ones((4, 3, 2), "float32"), Y)
    return trainer


def mistake(trainer):
    trainer.fit(np.zeros((10, 3, 2), "float32"), np.zeros((10, 2), "float32"))
