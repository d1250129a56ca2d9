# A feature of a target is not empty.
import pullback
from tests.errors.models import linear


def mistake():
    pullback.compile(linear, {"kind": "llvm", "mattr": [""]})
