# There is no such machine.
import pullback
from tests.errors.models import linear


def mistake():
    pullback.compile(linear, "llvm -mtriple=z80-unknown-none")
