# A module holds functions.
from pullback.ir import IRModule


def mistake():
    IRModule({"main": 3})
