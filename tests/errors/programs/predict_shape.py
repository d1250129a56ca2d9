# The rows have three columns.
import numpy as np

from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.predict(np.zeros((4, 2), "float32"))
