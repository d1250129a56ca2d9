# None is no data.
from tests.errors.models import linear_trainer, Y


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.fit(None, Y)
