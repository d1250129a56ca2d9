# A batch of no rows.
from tests.errors.models import linear_trainer, X, Y


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.update(X[:0], Y[:0])
