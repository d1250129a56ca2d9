# Parameters are variables.
import numpy as np

from pullback.relax.training import optimizer


def mistake():
    optimizer.SGD(0.1).init([np.zeros(3)])
