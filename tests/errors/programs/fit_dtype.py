# The values are no float32.
import numpy as np

from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.fit(np.full((8, 3), 0.1), np.zeros((8, 2), "float32"), cast=False)
