"""SharePrefixes: what it rewrites, what it leaves, and how many operands are left of a net that reads all before."""

from __future__ import annotations

import numpy as np

import pullback
from pullback.ir import IRModule, assert_structural_equal
from pullback.relax import BlockBuilder, Call, TensorStructInfo, Var, op
from pullback.relax.transform import Gradient, SharePrefixes
from pullback.script import ir as I
from pullback.script import relax as R
from tests.helpers import round_trip


def test_the_longest_beginning_is_shared() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(a: R.Tensor((2, 3)), b: R.Tensor((2, 1)), c: R.Tensor((2, 4)), d: R.Tensor((2, 2))):
            with R.dataflow():
                ab = R.concat([a, b], axis=1)
                abc = R.concat([a, b, c], axis=-1)
                abcd = R.concat([a, b, c, d], axis=1)
                R.output(ab, abc, abcd)
            return (ab, abc, abcd)

    @I.ir_module
    class Expected:
        @R.function
        def main(a: R.Tensor((2, 3)), b: R.Tensor((2, 1)), c: R.Tensor((2, 4)), d: R.Tensor((2, 2))):
            with R.dataflow():
                ab = R.concat([a, b], axis=1)
                abc = R.concat([ab, c], axis=-1)
                abcd = R.concat([abc, d], axis=1)
                R.output(ab, abc, abcd)
            return (ab, abc, abcd)

    assert_structural_equal(SharePrefixes()(Before), Expected)
    round_trip(SharePrefixes()(Before))


def test_another_axis_another_beginning_and_an_end_are_left() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(a: R.Tensor((2, 2)), b: R.Tensor((2, 2)), c: R.Tensor((2, 2))):
            with R.dataflow():
                ab = R.concat([a, b], axis=1)
                ba = R.concat([b, a, c], axis=1)
                rows = R.concat([a, b, c], axis=0)
                end = R.concat([c, a, b], axis=1)
                one = R.concat([a, c, c], axis=1)
                R.output(ab, ba, rows, end, one)
            return (ab, ba, rows, end, one)

    assert_structural_equal(SharePrefixes()(Before), Before)


def _dense(count: int) -> IRModule:
    """Every layer reads the concatenation of all before it; the sum of squares of the last."""
    x = Var("x", TensorStructInfo((2, 3)))
    weights = [Var(f"w{k}", TensorStructInfo((3 + 2 * k, 2))) for k in range(count)]
    builder = BlockBuilder()
    with builder.function("main", [x, *weights]):
        with builder.dataflow():
            parts = [x]
            for w in weights:
                joined = builder.emit(op.concat(parts, axis=1)) if len(parts) > 1 else x
                parts.append(builder.emit(op.tanh(builder.emit(op.matmul(joined, w)))))
            out = builder.emit_output(op.sum(builder.emit(op.square(builder.emit(op.concat(parts, axis=1))))))
        builder.emit_func_output(out)
    return builder.get()


def _operands(module: IRModule, name: str) -> int:
    return sum(len(b.value.args) for b in module[name].bindings if isinstance(b.value, Call))


def test_a_gradient_has_so_many_operands_as_there_are_layers() -> None:
    counts = [_operands(Gradient("main")(_dense(n)), "main_adjoint") for n in (8, 16, 32)]
    assert counts[2] - counts[1] == 2 * (counts[1] - counts[0])


def test_a_gradient_of_shared_beginnings_is_the_numeric_one() -> None:
    module = Gradient("main")(_dense(4))
    rng = np.random.default_rng(0)
    shapes = [p.struct_info.shape for p in module["main"].params]
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]

    def value(*inputs: np.ndarray) -> float:
        parts = [inputs[0]]
        for w in inputs[1:]:
            parts.append(np.tanh(np.concatenate(parts, 1) @ w))
        return float(np.sum(np.concatenate(parts, 1) ** 2))

    wide = [a.astype(np.float64) for a in arrays]
    for target in ("llvm", "debug"):
        result, gradients = pullback.compile(module, target).function("main_adjoint")(*arrays)
        np.testing.assert_allclose(result.numpy(), value(*wide), rtol=1e-5)
        for k, gradient in enumerate(gradients):
            step = np.zeros_like(wide[k])
            step.flat[0] = 1e-5
            up, down = ([w + s if n == k else w for n, w in enumerate(wide)] for s in (step, -step))
            np.testing.assert_allclose(gradient.numpy().flat[0], (value(*up) - value(*down)) / 2e-5, rtol=1e-4)
