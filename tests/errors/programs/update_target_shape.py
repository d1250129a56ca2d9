# Targets have the predictions' shape.
import numpy as np

from tests.errors.models import linear_trainer, X


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.update(X, np.zeros(4, "float32"))
