# The model has no parameter weight.
import numpy as np

from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.load_params({"w": np.zeros((3, 2), "float32"), "bias": np.zeros(2, "float32")})
