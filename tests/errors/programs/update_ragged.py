# The rows of a list differ in length.
from tests.errors.models import linear_trainer, Y


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.update([[1.0, 2.0, 3.0], [4.0, 5.0]], Y)
