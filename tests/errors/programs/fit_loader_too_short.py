# Fewer batches than an epoch is to take.
from tests.errors.models import linear_trainer, X, Y


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.fit([(X, Y), (X, Y)], steps_per_epoch=3)
