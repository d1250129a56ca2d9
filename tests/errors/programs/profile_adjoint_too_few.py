# profile_adjoint needs targets.
from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.profile_adjoint([], [])
