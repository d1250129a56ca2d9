# The rows and columns of the batch are exchanged.
from tests.errors.models import linear_trainer, X, Y


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.update(X.T, Y)
