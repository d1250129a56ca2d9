# PULLBACK_WITHOUT names a schedule that there is not.
# environment: PULLBACK_WITHOUT=Contractions
import numpy as np

import pullback
from tests.errors.models import linear, X

pullback.compile(linear)["backbone"](X, np.zeros((3, 2), "float32"), np.zeros(2, "float32"))
