# Targets come second.
from tests.errors.models import classifier_trainer, X, LABELS


def setup():
    return classifier_trainer()


def mistake(trainer):
    trainer.fit(LABELS, X)
