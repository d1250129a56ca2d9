# math.exp takes numbers, not graph values.
from pullback.script import relax as R

import math


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    y = math.exp(x)
    return y
