# Single examples where batches are expected.
from tests.errors.models import linear_trainer, X, Y


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.fit(zip(X, Y, strict=True))
