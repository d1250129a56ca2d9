# The module was not set up.
import pullback
from pullback.relax import VirtualMachine
from pullback.relax.training import Trainer
from tests.errors.models import linear


def mistake():
    Trainer(linear, VirtualMachine(pullback.compile(linear), pullback.cpu()), pullback.cpu())
