# The optimizer does not know its parameters yet.
from pullback.relax.training import optimizer


def mistake():
    optimizer.SGD(0.1).get_function()
