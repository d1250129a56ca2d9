# The name of a function is printable.
from pullback.ir import IRModule
from tests.errors.models import linear


def mistake():
    IRModule({"main\n\0": linear["backbone"]})
