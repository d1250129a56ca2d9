# A feature needs a sign.
import pullback
from tests.errors.models import linear


def mistake():
    pullback.compile(linear, "llvm -mattr=avx2")
