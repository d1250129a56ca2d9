"""Shapes bound to variables are arguments of ops, and symbolic sizes are values in them."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback.ir import IRModule, assert_structural_equal
from pullback.relax.transform import Gradient
from pullback.script import from_source

X = np.arange(6, dtype="float32").reshape(3, 2)
HEAD = '@R.function\ndef main(x: R.Tensor(("n", 2), "float32")):\n    n = T.int64()\n'
CASES = {
    "reshape to symbolic sizes": ("s = R.shape([n * 2])\n    return R.reshape(x, s)", X.reshape(6)),
    "reshape to a literal": ("return R.reshape(x, R.shape([2, n]))", X.reshape(2, 3)),
    "an alias": ("s = R.shape([2, n])\n    t = s\n    return R.reshape(x, t)", X.reshape(2, 3)),
    "broadcast_to": ("s = R.shape([4, n, 2])\n    return R.broadcast_to(x, s)", np.broadcast_to(X, (4, 3, 2))),
    "zeros": ('s = R.shape([n, n + 1])\n    return R.zeros(s, "float32")', np.zeros((3, 4))),
    "full": ("s = R.shape([n])\n    return R.full(s, R.sum(x))", np.full(3, X.sum())),
    "in a block": ("with R.dataflow():\n        s = R.shape([n * 2])\n        y = R.reshape(x, s)\n        R.output(y)"
                   "\n    return y", X.reshape(6)),
    "as a tensor": ("return R.shape_to_tensor(R.shape([n, 2]))", np.array([3, 2])),
}  # fmt: skip


@pytest.mark.parametrize("target", ["debug", "llvm"])
@pytest.mark.parametrize("name", CASES)
def test_values(name, target):
    body, expected = CASES[name]
    function = from_source(f"{HEAD}    {body}\n")
    result = pullback.compile(IRModule({"main": function}), target).function("main")(X).numpy()
    np.testing.assert_allclose(result, expected)
    assert_structural_equal(from_source(function.script()), function)


@pytest.mark.parametrize("target", ["debug", "llvm"])
def test_gradient_through_a_shape_in_a_variable(target):
    body = "s = R.shape([n * 2])\n    y = R.reshape(x, s)\n    z = R.sum(R.multiply(y, y))\n    return z"
    module = Gradient("main")(IRModule({"main": from_source(f"{HEAD}    {body}\n")}))
    value, (dx,) = pullback.compile(module, target).function("main_adjoint")(X)
    np.testing.assert_allclose(value.numpy(), (X * X).sum())
    np.testing.assert_allclose(dx.numpy(), 2 * X)


def test_static_sizes():
    text = '@R.function\ndef main(x: R.Tensor((3, 1), "float32")):\n    s = R.shape([3])\n    return R.reshape(x, s)\n'
    assert from_source(text).ret_struct_info.shape == (3,)


RETURNED = {
    "a shape": ("return R.shape([n, 4])", (3, 4)),
    "a shape in a variable": ("s = R.shape([n * 2, n + 1])\n    return s", (6, 4)),
    "an empty shape": ("return R.shape([])", ()),
    "a size": ("return R.prim_value(n * 2)", 6),
    "a number": ("return R.prim_value(2.5)", 2.5),
}


@pytest.mark.parametrize("target", ["debug", "llvm"])
@pytest.mark.parametrize("name", RETURNED)
def test_shapes_and_sizes_are_returned(name, target):
    body, expected = RETURNED[name]
    module = IRModule({"main": from_source(f"{HEAD}    {body}\n")})
    given = pullback.compile(module, target).function("main")(X)
    assert given == expected and type(given) is type(expected)


@pytest.mark.parametrize("target", ["debug", "llvm"])
def test_shapes_are_returned_beside_tensors(target):
    body = "y = R.exp(x)\n    return (R.shape([n, 2]), (y, R.prim_value(n)), R.shape([7]))"
    module = IRModule({"main": from_source(f"{HEAD}    {body}\n")})
    shape, (y, size), seven = pullback.compile(module, target).function("main")(X)
    assert shape == (3, 2) and size == 3 and seven == (7,)
    np.testing.assert_allclose(y.numpy(), np.exp(X), rtol=1e-6)
