# backbone takes x, w and b.
import pullback
from pullback.relax import VirtualMachine
from tests.errors.models import linear, X


def mistake():
    VirtualMachine(pullback.compile(linear), pullback.cpu())["backbone"](X)
