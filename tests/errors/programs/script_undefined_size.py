# The size n of the return type belongs to no parameter: symbolic sizes are strings.
from __future__ import annotations

from pullback.script import relax as R


@R.function
def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((n, 3), "float32"):  # noqa: F821
    return x
