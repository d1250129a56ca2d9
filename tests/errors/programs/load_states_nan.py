# NaN is no integer.
from tests.errors.models import counting_trainer


def setup():
    return counting_trainer()


def mistake(trainer):
    trainer.load_states({"calls": float("nan")})
