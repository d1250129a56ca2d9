# A generator is read once.
from tests.errors.models import linear_trainer, X, Y


def setup():
    return linear_trainer()


def mistake(trainer):
    batches = ((X, Y) for _ in range(5))
    trainer.fit(batches, epochs=2)
