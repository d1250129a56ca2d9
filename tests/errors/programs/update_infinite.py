# A float64 that is no float32.
import numpy as np

from tests.errors.models import linear_trainer, X, Y


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.update(np.where(X[1, 2] == X, 1e300, X.astype("float64")), Y)
