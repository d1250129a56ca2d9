# A seed is an integer.
from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.xavier_uniform_init_params(seed=0.5)
