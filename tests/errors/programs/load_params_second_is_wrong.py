# w fits, b does not: neither is loaded.
import numpy as np

from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.load_params({"w": np.ones((3, 2), "float32"), "b": np.ones(3, "float32")})
