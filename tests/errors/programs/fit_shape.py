# The rows have three columns.
import numpy as np

from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.fit(np.zeros((8, 5), "float32"), np.zeros((8, 2), "float32"))
