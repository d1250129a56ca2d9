# A learning rate is not negative.
from pullback.relax.training import optimizer


def mistake():
    optimizer.SGD(-0.1)
