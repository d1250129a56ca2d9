# There is nothing to optimize.
from pullback.relax.training import optimizer


def mistake():
    optimizer.SGD(0.1).init([])
