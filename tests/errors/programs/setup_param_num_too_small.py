# With param_num 1, w counts as an input.
import numpy as np

import pullback
from pullback.relax.training import loss, optimizer
from tests.errors.models import linear, X, Y


def setup():
    model = linear.with_attr("param_num", 1)
    trainer = pullback.trainer(model, loss.MSELoss(), optimizer.SGD(0.1))
    trainer.update([X, np.ones((3, 2), "float32")], Y)
    return trainer


def mistake(trainer):
    trainer.update(X, Y)
