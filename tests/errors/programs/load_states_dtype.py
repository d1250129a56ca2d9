# calls is an integer.
from tests.errors.models import counting_trainer


def setup():
    return counting_trainer()


def mistake(trainer):
    trainer.load_states({"calls": 2.5})
