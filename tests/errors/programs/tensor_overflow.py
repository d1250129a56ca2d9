# The number does not fit int64.
import pullback


def mistake():
    pullback.tensor(2**70)
