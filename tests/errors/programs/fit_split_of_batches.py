# A split of what comes batch by batch.
from tests.errors.models import linear_trainer, X, Y


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.fit(lambda: [(X, Y)], validation_split=0.5)
