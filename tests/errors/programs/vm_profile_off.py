# The machine was made without profile=True.
import pullback
from pullback.relax import VirtualMachine
from tests.errors.models import linear, X


def mistake():
    VirtualMachine(pullback.compile(linear)).profile("backbone", X, X, X)
