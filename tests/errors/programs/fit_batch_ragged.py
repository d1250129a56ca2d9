# The rows of a batch differ in length.
from tests.errors.models import linear_trainer, Y


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.fit(lambda: [([[1.0, 2.0, 3.0], [4.0]], Y[:2])])
