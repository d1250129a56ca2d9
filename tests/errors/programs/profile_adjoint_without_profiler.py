# The machine was made without profile=True.
from tests.errors.models import linear_trainer, X, Y


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.profile_adjoint(X, Y)
