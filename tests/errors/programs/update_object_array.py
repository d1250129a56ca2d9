# An array of objects is no batch.
from tests.errors.models import linear_trainer, X, Y


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.update(X.astype(object), Y)
