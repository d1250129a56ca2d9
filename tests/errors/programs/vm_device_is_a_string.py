# A device is an object.
import pullback
from pullback.relax import VirtualMachine
from tests.errors.models import linear


def mistake():
    VirtualMachine(pullback.compile(linear), "cpu")
