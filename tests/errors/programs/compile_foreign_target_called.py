# The code is for another machine than this one.
import numpy as np

import pullback
from tests.errors.models import linear, X


def mistake():
    run = pullback.compile(linear, "llvm -mtriple=riscv64-linux-gnu")["backbone"]
    run(X, np.zeros((3, 2), "float32"), np.zeros(2, "float32"))
