# A target is no number.
import pullback
from tests.errors.models import linear


def mistake():
    pullback.compile(linear, 3)
