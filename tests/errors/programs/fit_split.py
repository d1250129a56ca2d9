# A split that leaves nothing to train on.
from tests.errors.models import linear_trainer, X, Y


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.fit(X, Y, validation_split=0.9)
