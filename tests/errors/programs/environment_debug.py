# The debug ladder has the rungs 0 to 5.
# environment: PULLBACK_DEBUG=9
import numpy as np

import pullback
from tests.errors.models import linear, X

pullback.compile(linear)["backbone"](X, np.zeros((3, 2), "float32"), np.zeros(2, "float32"))
