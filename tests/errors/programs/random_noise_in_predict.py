# The model adds noise, in predict too.
import numpy as np

import pullback
from pullback.relax.training.loss import MSELoss
from pullback.relax.training.optimizer import SGD
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Noisy:
    I.module_attrs({"param_num": 1, "state_num": 0})

    @R.function
    def backbone(x: R.Tensor((4, 3), "float32"), w: R.Tensor((3, 2), "float32")):
        with R.dataflow():
            noise = R.random.normal((4, 2), 0.0, 0.1)
            out = R.matmul(x, w) + noise
            R.output(out)
        return out


def setup():
    trainer = pullback.trainer(Noisy, MSELoss(), SGD(0.1))
    trainer.update(np.ones((4, 3), "float32"), np.ones((4, 2), "float32"))
    return trainer


def mistake(trainer):
    trainer.predict(np.ones((4, 3), "float32"))
