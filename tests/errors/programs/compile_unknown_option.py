# There is no option -cpu.
import pullback
from tests.errors.models import linear


def mistake():
    pullback.compile(linear, "llvm -cpu=znver4")
