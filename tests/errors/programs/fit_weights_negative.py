# A weight below 0.
from tests.errors.models import linear_trainer, X, Y


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.fit(X, Y, sample_weight=[1, 1, -1, 1])
