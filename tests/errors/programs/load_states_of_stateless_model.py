# The model has no states.
import numpy as np

from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.load_states({"seen": np.zeros(2, "float32")})
