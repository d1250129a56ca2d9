# More bytes than there are addresses.
import pullback


def mistake():
    pullback.runtime.empty((2**40, 2**40))
