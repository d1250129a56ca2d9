# Groups come first, then what concerns all gradients.
from pullback.relax.training import optimizer


def mistake():
    optimizer.ParameterGroups(optimizer.ClipByGlobalNorm(optimizer.SGD(0.1), 1.0), {"w*": {"lr": 0.9}})
