# A size is negative.
import pullback


def mistake():
    pullback.runtime.empty((2, -1))
