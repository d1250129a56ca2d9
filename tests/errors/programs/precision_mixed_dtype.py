# The pass computes in half precision.
from pullback.relax.transform import MixedPrecision

MixedPrecision("main", "float32")
