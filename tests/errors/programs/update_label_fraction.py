# 0.5 is no class.
import numpy as np

from tests.errors.models import classifier_trainer, X


def setup():
    return classifier_trainer()


def mistake(trainer):
    trainer.update(X, np.array([0, 1, 0.5, 1]))
