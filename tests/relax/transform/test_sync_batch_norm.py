"""SyncBatchNorm: which batch norms it replaces."""

import pytest

from pullback.ir import IRModule, assert_structural_equal
from pullback.ir.errors import ArgumentError
from pullback.relax.transform import SyncBatchNorm
from pullback.script import ir as I
from pullback.script import relax as R


def test_batch_norms_in_training():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4, 3)), g: R.Tensor((3,)), b: R.Tensor((3,)), m: R.Tensor((3,)), v: R.Tensor((3,))):
            with R.dataflow():
                y = R.nn.batch_norm(x, g, b, m, v, momentum=0.3, unbiased=False)
                z = R.nn.batch_norm(y[0], g, b, m, v, training=False)
                R.output(z)
            return z

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4, 3)), g: R.Tensor((3,)), b: R.Tensor((3,)), m: R.Tensor((3,)), v: R.Tensor((3,))):
            with R.dataflow():
                y = R.nn.sync_batch_norm(x, g, b, m, v, num_workers=4, momentum=0.3, unbiased=False)
                z = R.nn.batch_norm(y[0], g, b, m, v, training=False)
                R.output(z)
            return z

    assert_structural_equal(SyncBatchNorm(4)(Before), Expected)


def test_in_branches():
    @I.ir_module
    class Module:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4, 3)), g: R.Tensor((3,)), b: R.Tensor((3,)), v: R.Tensor((3,))):
            if c:
                z = R.nn.batch_norm(x, g, b, b, v)
                y = z[0]
            else:
                y = R.exp(x)
            return y

    text = SyncBatchNorm(2)(Module).script()
    assert "R.nn.sync_batch_norm" in text and "R.nn.batch_norm" not in text


def test_number_of_ranks():
    with pytest.raises(ArgumentError, match="num_workers must be at least 1, got 0"):
        SyncBatchNorm(0)(IRModule())
