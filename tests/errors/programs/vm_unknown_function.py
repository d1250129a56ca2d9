# There is no function main.
import pullback
from pullback.relax import VirtualMachine
from tests.errors.models import linear


def mistake():
    VirtualMachine(pullback.compile(linear), pullback.cpu())["main"]
