# SGD has a learning rate, and it is called lr.
from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.set_hyperparameter("learning_rate", 0.5)
