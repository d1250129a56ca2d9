# A batch of another shape.
from tests.errors.models import linear_trainer, X, Y


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.fit(lambda: [(X[:, :2], Y)])
