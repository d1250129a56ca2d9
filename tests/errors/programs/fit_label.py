# The label in row 9 is no class.
import numpy as np

from tests.errors.models import classifier_trainer


def setup():
    return classifier_trainer()


def mistake(trainer):
    labels = np.zeros(12, "int64")
    labels[9] = 2
    trainer.fit(np.zeros((12, 3), "float32"), labels)
