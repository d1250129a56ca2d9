# The model has two parameters.
import numpy as np

from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.load_params([np.zeros((3, 2), "float32")])
