# A batch of no rows.
from tests.errors.models import linear_trainer, X


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.predict(X, batch_size=0)
