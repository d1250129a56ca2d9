# The label of a validation row is no class.
from tests.errors.models import classifier_trainer, LABELS, X


def setup():
    return classifier_trainer()


def mistake(trainer):
    trainer.fit(X, LABELS, validation=(X, LABELS - 1))
