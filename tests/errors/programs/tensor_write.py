# A tensor does not change by assignment.
import pullback


def mistake():
    pullback.tensor([1.0, 2.0])[0] = 3.0
