# The cache's directory begins with the home of a user who does not exist.
# environment: PULLBACK_CACHE_DIR=~nobody-of-that-name/cache
import numpy as np

import pullback
from tests.errors.models import linear, X

pullback.compile(linear)["backbone"](X, np.zeros((3, 2), "float32"), np.zeros(2, "float32"))
