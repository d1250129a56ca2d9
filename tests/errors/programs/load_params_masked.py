# A tensor has no mask.
import numpy as np

from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.load_params({"b": np.ma.masked_equal(np.float32([0, 1]), 0)})
