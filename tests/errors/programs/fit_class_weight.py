# A class that there is not.
from tests.errors.models import classifier_trainer, X, LABELS


def setup():
    return classifier_trainer()


def mistake(trainer):
    trainer.fit(X, LABELS, class_weight={2: 5.0})
