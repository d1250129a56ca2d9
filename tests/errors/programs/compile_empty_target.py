# The target is an empty string.
import pullback
from tests.errors.models import linear


def mistake():
    pullback.compile(linear, "")
