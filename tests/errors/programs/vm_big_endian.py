# The array has another byte order.
import numpy as np

import pullback
from pullback.relax import VirtualMachine
from tests.errors.models import linear, X


def mistake():
    run = VirtualMachine(pullback.compile(linear), pullback.cpu())["backbone"]
    run(X.astype(">f4"), np.zeros((3, 2), "float32"), np.zeros(2, "float32"))
