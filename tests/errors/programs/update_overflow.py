# 1e300 is too large for float32.
import numpy as np

from tests.errors.models import linear_trainer, Y


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.update(np.full((4, 3), 1e300), Y)
