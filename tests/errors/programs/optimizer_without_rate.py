# SGD needs a learning rate.
from pullback.relax.training import optimizer


def mistake():
    optimizer.SGD()
