"""UnroundedProducts: which products give float32, and that training in mixed precision has gradients of all digits."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import pullback
from pullback import relax
from pullback.ir import IRModule, assert_structural_equal
from pullback.relax.op_calls import is_op
from pullback.relax.transform import UnroundedProducts
from pullback.script import ir as I
from pullback.script import relax as R

BF16 = ml_dtypes.bfloat16


@I.ir_module
class Given:
    @R.function
    def main(
        x: R.Tensor((8, 16), "bfloat16"), w: R.Tensor((16, 4), "bfloat16"), b: R.Tensor((4,), "float32"),
        r: R.Tensor((8, 4), "float32"),
    ):  # fmt: skip
        with R.dataflow():
            y = R.matmul(x, w)
            b_bf16 = R.astype(b, "bfloat16")
            z = R.nn.relu(R.add(b_bf16, y))
            u = R.matmul(x, w)
            dw = R.astype(u, "float32")
            twice = R.matmul(x, w)
            first = R.astype(twice, "float32")
            second = R.nn.relu(twice)
            result = R.matmul(x, w)
            wide = R.astype(result, "float32")
            large = R.add(R.matmul(x, w), R.astype(r, "bfloat16"))
            R.output(z, dw, first, second, result, wide, large)
        return z, dw, first, second, result, wide, large


@I.ir_module
class Expected:
    @R.function
    def main(
        x: R.Tensor((8, 16), "bfloat16"), w: R.Tensor((16, 4), "bfloat16"), b: R.Tensor((4,), "float32"),
        r: R.Tensor((8, 4), "float32"),
    ):  # fmt: skip
        with R.dataflow():
            y = R.matmul(x, w, out_dtype="float32")
            total = R.add(y, b)
            rounded = R.astype(total, "bfloat16")
            z = R.nn.relu(rounded)
            dw = R.matmul(x, w, out_dtype="float32")
            twice = R.matmul(x, w)
            first = R.astype(twice, "float32")
            second = R.nn.relu(twice)
            result = R.matmul(x, w)
            wide = R.astype(result, "float32")
            lv = R.matmul(x, w)
            lv1 = R.astype(r, "bfloat16")
            large = R.add(lv, lv1)
            R.output(z, dw, first, second, result, wide, large)
        return z, dw, first, second, result, wide, large


def test_what_is_rounded_for_one_use_only() -> None:
    """Not what has other uses, what is a result, nor where a large float32 operand would be read in place of a cast."""
    assert_structural_equal(UnroundedProducts()(Given), Expected)


def test_an_alias_is_a_use() -> None:
    @I.ir_module
    class Aliased:
        @R.function
        def main(x: R.Tensor((8, 16), "bfloat16"), w: R.Tensor((16, 4), "bfloat16")):
            with R.dataflow():
                y = R.matmul(x, w)
                z = y
                a = R.astype(z, "float32")
                b = R.nn.relu(z)
                R.output(a, b)
            return a, b

    found = UnroundedProducts()(Aliased)["main"]
    assert sum(is_op(binding.value, "matmul") for binding in found.bindings) == 1


@pytest.mark.parametrize("op", ["conv2d", "conv1d_transpose"])
def test_convolutions_are_products(op: str) -> None:
    rank = 2 if "2d" in op else 1
    infos = [R.Tensor((2, 3, *[6] * rank), "bfloat16"), R.Tensor((3, 3, *[3] * rank), "bfloat16")]
    x, w = (relax.Var(name, info) for name, info in zip("xw", infos, strict=True))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w]):
        with builder.dataflow():
            y = builder.emit(getattr(relax.op.nn, op)(x, w))
            out = builder.emit_output(relax.op.astype(y, "float32"))
        builder.emit_func_output(out)
    (binding,) = UnroundedProducts()(builder.get())["main"].bindings
    assert is_op(binding.value, f"nn.{op}") and binding.value.struct_info.dtype == "float32"


def mixed(precision: str) -> IRModule:
    @I.ir_module
    class Model:
        I.module_attrs({"param_num": 2, "state_num": 0})

        @R.function
        def backbone(x: R.Tensor((8, 16), "float32"), w: R.Tensor((16, 4), "float32"), b: R.Tensor((4,), "float32")):
            with R.dataflow():
                y = R.add(R.matmul(x, w), b)
                R.output(y)
            return y

    loss = relax.training.loss.MSELoss()
    infos = [relax.TensorStructInfo((8, 4), "float32")] * 2
    return relax.training.SetupTrainer(loss, relax.training.optimizer.SGD(0.1), infos, precision=precision)(Model)


@pytest.mark.parametrize("target", ["llvm", "debug"])
def test_gradients_of_weights_are_sums_that_nobody_rounded(target: str) -> None:
    module = mixed("bfloat16")
    rng = np.random.default_rng(0)
    x, w, y = (rng.standard_normal(s).astype(np.float32) for s in ((8, 16), (16, 4), (8, 4)))
    machine = relax.VirtualMachine(pullback.compile(module, target), pullback.cpu(0))
    arguments = [pullback.nd.array(a) for a in (x, w, np.zeros(4, np.float32), y)]
    _, (dw, _) = machine["backbone_loss_adjoint"](*arguments)
    low = [a.astype(BF16).astype(np.float64) for a in (x, w)]
    prediction = (low[0] @ low[1]).astype(np.float32)  # the loss takes float32, so it is not rounded either
    dy = (2 * (prediction - y) / y.size).astype(np.float32).astype(BF16).astype(np.float64)
    np.testing.assert_allclose(dw.numpy(), low[0].T @ dy, rtol=1e-5, atol=1e-6)
