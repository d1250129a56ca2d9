# A learning rate is a number.
from pullback.relax.training import optimizer


def mistake():
    optimizer.SGD("fast")
