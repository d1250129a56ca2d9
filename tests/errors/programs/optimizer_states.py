# SGD has one state, the step count.
import numpy as np

from pullback.relax.training import optimizer
from tests.errors.models import linear


def mistake():
    sgd = optimizer.SGD(0.1).init(linear["backbone"].params[1:])
    sgd.state = [np.zeros((), "int64"), np.zeros(3)]
