# 2**24 + 1 is no float32.
import numpy as np

from tests.errors.models import linear_trainer, Y


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.update(np.full((4, 3), 2**24 + 1), Y, cast=False)
