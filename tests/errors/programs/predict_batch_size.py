# The model is made for four rows.
from tests.errors.models import linear_trainer, X


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.predict(X[0:2])
