# There are two classes, 0 and 1.
from tests.errors.models import classifier_trainer, LABELS, X


def setup():
    return classifier_trainer()


def mistake(trainer):
    trainer.evaluate(X, LABELS + 1)
