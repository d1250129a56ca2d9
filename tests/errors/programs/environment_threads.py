# The number of threads is no number.
# environment: PULLBACK_NUM_THREADS=abc
import numpy as np

import pullback
from tests.errors.models import linear, X

pullback.compile(linear)["backbone"](X, np.zeros((3, 2), "float32"), np.zeros(2, "float32"))
