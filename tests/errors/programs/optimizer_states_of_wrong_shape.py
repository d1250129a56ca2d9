# The velocity has another shape than its parameter.
import numpy as np

import pullback
from pullback.ir import IRModule
from pullback.relax import VirtualMachine
from pullback.relax.training import optimizer
from tests.errors.models import linear


def mistake():
    update = optimizer.MomentumSGD(0.1, 0.9).init(linear["backbone"].params[2])
    run = VirtualMachine(pullback.compile(IRModule({"update": update.get_function()})))["update"]
    b = np.zeros(2, "float32")
    run((b,), (b,), (np.array(0), np.zeros(3, "float32")))
