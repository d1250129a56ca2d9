# backbone takes x, w and b.
import numpy as np

import pullback
from pullback.relax import VirtualMachine
from tests.errors.models import linear, X, Y


def mistake():
    run = VirtualMachine(pullback.compile(linear), pullback.cpu())["backbone"]
    run(X, np.zeros((3, 2), "float32"), np.zeros(2, "float32"), Y)
