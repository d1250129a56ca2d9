# The parameters of the optimizer are one tuple.
from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.vm["optimizer"](*trainer.params.values(), (), ())
