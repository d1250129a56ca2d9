# The memory of w is read-only, and a step overwrites it.
import numpy as np

import pullback
from tests.errors.models import X, Y, linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer):
    w = np.zeros((3, 2), "float32")
    w.setflags(write=False)
    b = np.zeros(2, "float32")
    tensors = map(pullback.tensor, [X, w, b, Y])
    trainer.vm.bind("__step", [*tensors, *trainer.optimizer_states])()
