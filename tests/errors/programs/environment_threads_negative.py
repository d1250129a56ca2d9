# The number of threads is negative.
# environment: PULLBACK_NUM_THREADS=-2
import numpy as np

import pullback
from tests.errors.models import linear, X

pullback.compile(linear)["backbone"](X, np.zeros((3, 2), "float32"), np.zeros(2, "float32"))
