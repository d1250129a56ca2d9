# A scalar has no length.
import pullback


def mistake():
    len(pullback.tensor(1.0))
