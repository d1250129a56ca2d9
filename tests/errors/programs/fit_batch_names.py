# Names that the model does not have.
from tests.errors.models import linear_trainer, X, Y


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.fit(lambda: [{"image": X, "label": Y}])
