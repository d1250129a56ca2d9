# An option has a value.
import pullback
from tests.errors.models import linear


def mistake():
    pullback.compile(linear, "llvm -mcpu")
