# A virtual machine runs what compile returns.
import pullback
from pullback.relax import VirtualMachine
from tests.errors.models import linear


def mistake():
    VirtualMachine(linear, pullback.cpu())
