# 0.1 in float64 is no float32.
import numpy as np

from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.load_params({"b": np.array([0.1, 0.2])})
