# The label is too large for int64.
import numpy as np

from tests.errors.models import classifier_trainer, X


def setup():
    return classifier_trainer()


def mistake(trainer):
    trainer.update(X, np.array([0, 1, 2**63 + 1, 1], "uint64"))
