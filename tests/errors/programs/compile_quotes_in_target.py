# A quote is not closed.
import pullback
from tests.errors.models import linear


def mistake():
    pullback.compile(linear, "llvm -mcpu='znver4")
