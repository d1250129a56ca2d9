# The optimizer comes first.
from pullback.relax.training import optimizer


def mistake():
    optimizer.ClipByGlobalNorm(1.0, optimizer.SGD(0.1))
