# SGD has no momentum.
from pullback.relax.training import optimizer


def mistake():
    optimizer.ParameterGroups(optimizer.SGD(0.1), {"w*": {"momentum": 0.9}})
