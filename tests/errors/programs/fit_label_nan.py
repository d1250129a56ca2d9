# A label that is missing.
import numpy as np

from tests.errors.models import classifier_trainer, X


def setup():
    return classifier_trainer()


def mistake(trainer):
    trainer.fit(X, np.array([0, 1, np.nan, 0]))
