# None is no tensor.
import numpy as np

import pullback
from pullback.relax import VirtualMachine
from tests.errors.models import linear


def mistake():
    run = VirtualMachine(pullback.compile(linear), pullback.cpu())["backbone"]
    run(None, np.zeros((3, 2), "float32"), np.zeros(2, "float32"))
