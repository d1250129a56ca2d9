# The virtual machine holds the model, not the trainer module.
import pullback
from pullback.relax import VirtualMachine
from pullback.relax.training import Trainer
from tests.errors.models import linear, linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer):
    Trainer(trainer.mod, VirtualMachine(pullback.compile(linear), pullback.cpu()), pullback.cpu())
