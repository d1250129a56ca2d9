# An array of objects is no tensor.
import numpy as np

from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.load_params({"b": np.array([None, 1.0], dtype=object)})
