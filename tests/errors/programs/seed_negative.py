# A seed is not negative.
from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.seed(-1)
