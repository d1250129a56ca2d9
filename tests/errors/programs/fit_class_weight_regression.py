# Weights of classes where there are none.
from tests.errors.models import linear_trainer, X, Y


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.fit(X, Y, class_weight={1: 5.0})
