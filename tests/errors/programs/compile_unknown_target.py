# There is no target cuda.
import pullback
from tests.errors.models import linear


def mistake():
    pullback.compile(linear, "cuda")
