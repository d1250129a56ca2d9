# There is no such feature.
import pullback
from tests.errors.models import linear


def mistake():
    pullback.compile(linear, "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 -mattr=+fast")
