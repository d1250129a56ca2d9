# float64 values that are no float32.
import numpy as np

from tests.errors.models import linear_trainer, X, Y


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.update(X + np.float64(1) / 3, Y, cast=False)
