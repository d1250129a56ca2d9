# This trainer was made with a virtual machine.
from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer):
    trainer.build("llvm")
