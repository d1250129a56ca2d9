# A data set has rows.
import numpy as np

from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.fit(np.float32(1), np.float32(2))
