# Batches have the size they have.
from tests.errors.models import linear_trainer, X, Y


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.fit(lambda: [(X, Y)], batch_size=2)
