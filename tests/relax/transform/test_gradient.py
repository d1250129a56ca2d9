"""Gradient: what it writes, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback.ir import DifferentiationError, NameNotFound, assert_structural_equal
from pullback.ir.errors import UserError
from pullback.relax.transform import Gradient
from pullback.script import ir as I
from pullback.script import relax as R
from tests.helpers import round_trip


def check(before, expected, *args, **kwargs) -> None:
    """``Gradient(...)(before)`` must be ``expected``, and print and parse to itself."""
    after = Gradient(*args, **kwargs)(before)
    assert_structural_equal(after, expected)
    round_trip(after)


def test_textbook():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3, 3), "float32")):
            with R.dataflow():
                y = R.exp(x)
                z = R.sum(y)
                R.output(z)
            return z

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((3, 3), "float32")):
            with R.dataflow():
                y = R.exp(x)
                z = R.sum(y)
                R.output(z)
            return z

        @R.function
        def main_adjoint(x: R.Tensor((3, 3), "float32")):
            with R.dataflow():
                y = R.exp(x)
                z = R.sum(y)
                z_adjoint = R.ones((), "float32")
                y_adjoint = R.broadcast_to(z_adjoint, (3, 3))
                x_adjoint = R.multiply(y_adjoint, y)
                x_adjoint_out = x_adjoint
                R.output(z, x_adjoint_out)
            return (z, (x_adjoint_out,))

    check(Before, Expected, "main")
    names = [b.var.name for b in Gradient("main")(Before)["main_adjoint"].bindings]
    assert names == ["y", "z", "z_adjoint", "y_adjoint", "x_adjoint", "x_adjoint_out"]


def test_transposes_fold_into_matmuls_and_unused_parameters_get_zeros():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((4, 3), "float32"), u: R.Tensor((5,), "float32")):
            with R.dataflow():
                wt = R.permute_dims(w)
                y = R.matmul(x, wt)
                z = R.sum(y)
                R.output(z)
            return z

    adjoint = Gradient("main")(Before)["main_adjoint"]
    ops = [b.value.op.short for b in adjoint.bindings if hasattr(b.value, "op")]
    # dx = dy·w and dw = dyᵀ·x: no transpose of w, and none of a product
    assert ops == [
        "permute_dims",
        "matmul",
        "sum",
        "ones",
        "broadcast_to",
        "matmul",
        "permute_dims",
        "matmul",
        "zeros",
    ]


def test_several_blocks_plain_bindings_tuples_and_calls():
    @I.ir_module
    class Module:
        @R.function(private=True)
        def half(x: R.Tensor((3,), "float64")) -> R.Tuple(R.Tensor((3,), "float64"), R.Tensor((3,), "float64")):
            with R.dataflow():
                y = R.multiply(x, R.const(0.5, "float64"))
                R.output(y)
            return (y, x)

        @R.function
        def main(x: R.Tensor((3,), "float64")):
            cls = Module
            with R.dataflow():
                a = R.exp(x)
                R.output(a)
            t = cls.half(a)
            with R.dataflow():
                b = t[0]
                c = t[1]
                d = R.sum(b * c)
                R.output(d)
            return d

    import numpy as np

    import pullback

    x = np.array([0.1, 0.2, -0.3])
    for target in ("debug", "llvm"):
        loss, (dx,) = pullback.compile(Gradient("main")(Module), target)["main_adjoint"](x)
        np.testing.assert_allclose(loss.numpy(), (0.5 * np.exp(2 * x)).sum(), rtol=1e-14)
        np.testing.assert_allclose(dx.numpy(), np.exp(2 * x), rtol=1e-14)


@I.ir_module
class Losses:
    @R.function
    def pair(x: R.Tensor((3,), "float32"), k: R.Tensor((3,), "int64")):
        with R.dataflow():
            z = R.sum(x)
            y = R.exp(x)
            R.output(z, y)
        return (y, z)

    @R.function
    def vector(x: R.Tensor((3,), "float32")):
        with R.dataflow():
            y = R.exp(x)
            R.output(y)
        return y


def test_target_index():
    adjoint = Gradient("pair", require_grads=Losses["pair"].params[0], target_index=1)(Losses)["pair_adjoint"]
    assert len(adjoint.body.body.fields[0].fields) == 2


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("nothing",), NameNotFound, "the module has no function 'nothing'; it has: pair, vector"),
        (("vector",), DifferentiationError, "must be a floating-point scalar, vector gives Tensor((3,), float32)"),
        (("pair",), DifferentiationError, "with respect to k of pair cannot be taken: it is Tensor((3,), int64)"),
        (
            ("pair", Losses["pair"].params[0], 5),
            DifferentiationError,
            "target_index 5 is outside the 2 results of pair",
        ),
        (
            ("pair", Losses["pair"].params[0], -1),
            DifferentiationError,
            "target_index -1 is outside the 2 results of pair",
        ),
        (("vector", None, 1), DifferentiationError, "target_index 1 is outside the single result of vector"),
        (("pair", ["x", "x"]), DifferentiationError, "the gradient of pair with respect to x is required twice"),
        (("pair", Losses["vector"].params[0], 1), DifferentiationError, "x is not a parameter of pair"),
    ],
)
def test_refused(arguments, error, message):
    with pytest.raises(error) as caught:
        Gradient(*arguments)(Losses)
    assert message in str(caught.value)


def test_adjoint_of_a_match_cast_has_the_sizes_of_what_it_took():
    """The adjoint of x is of x's type again, though z has a size of another name."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), w: R.Tensor(("m",), "float32")):
            y = R.multiply(x, x)
            z = R.match_cast(y, R.Tensor(("m",), "float32"))
            s = R.sum(R.multiply(z, w))
            return s

    adjoint = Gradient("main")(Before)["main_adjoint"]
    assert [p.struct_info for p in adjoint.params] == list(adjoint.ret_struct_info.fields[1].fields)
    x, w = np.float32([1, 2, 3]), np.float32([4, 5, 6])
    for target in ("llvm", "debug"):
        _, (dx, dw) = pullback.compile(Gradient("main")(Before), target).function("main_adjoint")(x, w)
        np.testing.assert_array_equal(dx.numpy(), 2 * x * w)
        np.testing.assert_array_equal(dw.numpy(), x * x)
        with pytest.raises(UserError):
            pullback.compile(Gradient("main")(Before), target).function("main_adjoint")(x, w[:2])
