"""Code for other machines is made, and never run here."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import codegen
from pullback.driver.pipeline import plan_function, prepare
from pullback.ir import IRModule, TargetError
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.target import Target


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


@I.ir_module
class Products:
    @R.function
    def main(
        a: R.Tensor((33, 40), "float32"),
        b: R.Tensor((40, 50), "float32"),
        x: R.Tensor((2, 4, 9, 9), "float32"),
        w: R.Tensor((8, 4, 3, 3), "float32"),
        q: R.Tensor((1, 20, 2, 8), "float32"),
    ):
        with R.dataflow():
            c = R.matmul(a, b)
            y = R.nn.conv2d(x, w, padding=1)
            z = R.nn.attention(q, q, q)
            R.output(c, y, z)
        return c, y, z


def assembly(module: IRModule, spec: str) -> str:
    target = Target(spec)
    plan = plan_function(prepare(module), "main", {}, target)
    return codegen.compile_assembly(codegen.emit_module([*plan.kernels.values(), plan.host], target), target)


@pytest.mark.parametrize("spec", [
    "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64", "llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128",
])  # fmt: skip
def test_products_never_call_libm(spec):
    """Without the instruction, a fused multiply-add is a call for every lane: products then multiply and add."""
    assert "fma" not in assembly(Products, spec)
    assert "vfmadd" in assembly(Products, "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3")
