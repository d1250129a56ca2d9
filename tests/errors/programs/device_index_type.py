# The index of a device is an integer.
import pullback


def mistake():
    pullback.cpu("0")
