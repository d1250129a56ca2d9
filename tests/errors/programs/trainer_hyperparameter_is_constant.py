# The momentum was given as a number, so it is a constant of the compiled step.
from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.set_hyperparameter("momentum", 0.5)
