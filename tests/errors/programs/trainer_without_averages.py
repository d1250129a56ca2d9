# Only EMA keeps averages of the parameters.
from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.averages  # noqa: B018
