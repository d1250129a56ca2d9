# Something that gives no data.
from tests.errors.models import linear_trainer, X


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.fit(object())
