# The CPU of a target is a string.
import pullback
from tests.errors.models import linear


def mistake():
    pullback.compile(linear, {"kind": "llvm", "mcpu": 3})
