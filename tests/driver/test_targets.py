"""Code for other machines is made, and never run here."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback.ir import TargetError
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((3,), "float32")):
        with R.dataflow():
            y = R.exp(x)
            R.output(y)
        return y


def test_foreign_code_is_not_called():
    executable = pullback.compile(Module, "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72")
    with pytest.raises(TargetError, match="which is not this machine: it cannot be called here"):
        executable["main"](np.zeros(3, "float32"))
