# The model has two states.
import numpy as np

from tests.errors.models import counting_trainer


def setup():
    return counting_trainer()


def mistake(trainer):
    trainer.load_states([np.array(3)])
