# A batch has a row axis.
import numpy as np

from tests.errors.models import linear_trainer, Y


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.update(np.zeros(3, "float32"), Y)
