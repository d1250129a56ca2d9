# A token is no row of the table: only the step that looks it up knows.
import numpy as np

import pullback
from pullback.relax.training import loss, optimizer
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class embedding:  # noqa: N801
    I.module_attrs({"param_num": 1, "state_num": 0})

    @R.function
    def backbone(tokens: R.Tensor((4,), "int64"), table: R.Tensor((10, 5), "float32")) -> R.Tensor((4, 5), "float32"):
        with R.dataflow():
            out = R.take(table, tokens, axis=0)
            R.output(out)
        return out


def setup():
    trainer = pullback.trainer(embedding, loss.MSELoss(), optimizer.SGD(0.1), seed=0)
    trainer.fit(np.arange(8), np.zeros((8, 5), "float32"), verbose=0)
    return trainer


def mistake(trainer):
    tokens = np.zeros(12, "int64")
    tokens[2] = 10
    trainer.fit(tokens, np.zeros((12, 5), "float32"), shuffle=False, verbose=0)
