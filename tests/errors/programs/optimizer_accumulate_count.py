# Gradients of no batch cannot be accumulated.
from pullback.relax.training import optimizer


def mistake():
    optimizer.Accumulate(optimizer.SGD(0.1), 0)
