"""SplitGradient: what it saves, that its two functions give what Gradient gives, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback.ir import DifferentiationError, IRModule, assert_structural_equal
from pullback.relax import TensorStructInfo, Tuple
from pullback.relax.control import traced
from pullback.relax.transform import AddRandomState, Gradient, SplitGradient
from pullback.script import ir as I
from pullback.script import relax as R
from tests.helpers import round_trip
from tests.properties.random_graphs import Maker


def called(module: IRModule, name: str, arguments, seeds) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The results, and the adjoints for these adjoints of the results that have any."""
    executable, backward = pullback.compile(module), module[f"{name}_backward"]
    found = [t.numpy() for t in executable.function(f"{name}_forward")(*arguments)]
    results = len(found) - sum(kind == "saved" for kind, _ in backward.attrs["kept"])
    sources = {"parameter": arguments, "result": found[:results], "saved": found[results:]}
    kept = [sources[kind][k] for kind, k in backward.attrs["kept"]]
    given = [seeds[k] for k in backward.attrs["seeded"]]
    return found[:results], [t.numpy() for t in executable.function(f"{name}_backward")(*kept, *given)]


def test_results_are_saved_where_they_do():
    @I.ir_module
    class Before:
        @R.function
        def f(x: R.Tensor((8, 6), "float32"), w: R.Tensor((6, 5), "float32")):
            with R.dataflow():
                z = R.matmul(x, w)
                y = R.tanh(z)
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def f(x: R.Tensor((8, 6), "float32"), w: R.Tensor((6, 5), "float32")):
            with R.dataflow():
                z = R.matmul(x, w)
                y = R.tanh(z)
                R.output(y)
            return y

        @R.function
        def f_forward(x: R.Tensor((8, 6), "float32"), w: R.Tensor((6, 5), "float32")):
            with R.dataflow():
                z = R.matmul(x, w)
                y = R.tanh(z)
                R.output(y)
            return (y,)

        @R.function
        def f_backward(
            x: R.Tensor((8, 6), "float32"), y: R.Tensor((8, 5), "float32"), y_adjoint: R.Tensor((8, 5), "float32")
        ):
            R.func_attr({"kept": (("parameter", 0), ("result", 0)), "seeded": (0,)})
            with R.dataflow():
                lv = R.multiply(y, y)
                lv1 = R.subtract(R.const(1.0, "float32"), lv)
                z_adjoint = R.multiply(y_adjoint, lv1)
                lv2 = R.permute_dims(x)
                w_adjoint = R.matmul(lv2, z_adjoint)
                R.output(w_adjoint)
            return (w_adjoint,)

    after = SplitGradient("f", "w")(Before)
    assert_structural_equal(after, Expected)
    round_trip(after)


@I.ir_module
class Norm:
    @R.function
    def f(x: R.Tensor((8, 64), "float64"), w: R.Tensor((64,), "float64"), b: R.Tensor((64,), "float64")):
        with R.dataflow():
            y = R.nn.layer_norm(x, w, b, axes=[-1])
            k = R.argmax(y, axis=-1)
            R.output(y, k)
        return (y, k)


def test_statistics_are_computed_once():
    after = SplitGradient("f")(Norm)
    backward = after["f_backward"]
    kinds = [kind for kind, _ in backward.attrs["kept"]]
    assert kinds == ["parameter", "parameter", "saved", "saved"]  # x, w, mean, 1/σ
    sizes = [np.prod(p.struct_info.shape) for p in backward.params[2:4]]
    assert sizes == [8, 8]


def test_what_is_overwritten_is_saved():
    after = SplitGradient("f", ["w", "b"], overwritten=("x",))(Norm)
    assert "x" not in [p.name for p in after["f_backward"].params]
    arguments = [np.random.default_rng(0).normal(size=s) for s in ((8, 64), (64,), (64,))]
    seed = np.random.default_rng(1).normal(size=(8, 64))
    _, (w, b) = called(after, "f", arguments, {0: seed})
    x = arguments[0]
    expected = (seed * (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)).sum(0)
    np.testing.assert_allclose(w, expected, rtol=1e-9)
    np.testing.assert_allclose(b, seed.sum(0), rtol=1e-9)


def test_integers_and_what_does_not_move_have_no_seeds():
    @I.ir_module
    class Module:
        @R.function
        def f(x: R.Tensor((3,), "float64"), w: R.Tensor((3,), "float64")):
            y = R.exp(x)
            k = R.floor(w)
            z = R.multiply(w, w)
            return (y, k, (z, w))

    after = SplitGradient("f", "w")(Module)
    assert after["f_backward"].attrs["seeded"] == (2, 3)
    (_, _, z, w), (adjoint,) = called(
        after, "f", [np.arange(3.0), np.arange(3.0) + 1], {2: np.ones(3), 3: np.full(3, 5.0)}
    )
    assert z.tolist() == [1, 4, 9] and w.tolist() == [1, 2, 3]
    assert adjoint.tolist() == [7, 9, 11]  # 2 w, and 5 of what is returned as it is


def test_what_dropout_drew_is_saved():
    @I.ir_module
    class Module:
        @R.function
        def f(x: R.Tensor((64, 8), "float32"), w: R.Tensor((8, 16), "float32")):
            z = R.matmul(x, w)
            y = R.dropout(z, p=0.5)
            t = R.exp(y)
            return t

    module = SplitGradient("f", "x")(AddRandomState("f")(Module))
    saved = [
        p.dtype
        for p, (kind, _) in zip(module["f_backward"].params, module["f_backward"].attrs["kept"], strict=False)
        if kind == "saved"
    ]
    assert saved == ["bool"]  # not the product, and not the result
    x, w, seed = np.ones((64, 8), "float32"), np.full((8, 16), 0.125, "float32"), np.ones((64, 16), "float32")
    state = np.array([3, 7], "uint64")
    (t,), (adjoint,) = called(module, "f", [x, w, state], {0: seed})
    kept = t > 1
    assert 0.4 < kept.mean() < 0.6
    np.testing.assert_allclose(adjoint, (np.where(kept, 2 * t, 0) @ w.T), rtol=1e-5)


def test_gradients_of_their_own():
    def function(x):
        return R.custom_gradient(lambda x: R.round(x), lambda x, dy: dy * 3.0 * x, (x,)) * 2.0

    module = IRModule({"f": traced(function, [TensorStructInfo((3,), "float64")])})
    x, seed = np.array([0.6, 1.2, 2.0]), np.array([1.0, 2.0, 3.0])
    (y,), (adjoint,) = called(SplitGradient("f")(module), "f", [x], [seed])
    assert y.tolist() == [2, 2, 4]
    np.testing.assert_allclose(adjoint, 2 * seed * 3 * x)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_loops(checkpoint):
    def function(a, x):
        how = {"checkpoint_every": 2} if checkpoint else {}
        (h,), (y,) = R.scan(lambda h, r: ((R.tanh(h * a + r),), (h * r * a,)), (a,), (x,), **how)
        return h, y

    def loss(a, x, u, v):
        h, y = function(a, x)
        return R.sum(h * u) + R.sum(y * v)

    infos = [TensorStructInfo(s, "float64") for s in ((3,), (6, 3))]
    module = IRModule({"f": traced(lambda a, x: Tuple(function(a, x)), infos)})
    rng = np.random.default_rng(2)
    a, x, u, v = rng.normal(size=3), rng.normal(size=(6, 3)), rng.normal(size=3), rng.normal(size=(6, 3))
    _, found = called(SplitGradient("f")(module), "f", [a, x], [u, v])
    expected = pullback.grad(loss, (0, 1))(a, x, u, v)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs(seed):
    """The loss of each graph is a sum; its adjoint 1 is given by hand."""
    graph = Maker(seed).make()
    joint = pullback.compile(Gradient("main")(graph.module)).function("main_adjoint")(*graph.inputs)
    split = SplitGradient("main")(graph.module)
    one = np.ones((), split["main_backward"].params[-1].dtype)
    results, adjoints = called(split, "main", graph.inputs, {0: one})
    np.testing.assert_allclose(results[0], joint[0].numpy(), rtol=1e-6, equal_nan=True)
    for found, expected in zip(adjoints, joint[1], strict=True):
        scale = np.abs(expected.numpy()).max(initial=0.0)
        tolerance = 1e-5 if found.dtype == np.float32 else 1e-11
        np.testing.assert_allclose(found, expected.numpy(), rtol=tolerance, atol=tolerance * scale, equal_nan=True)


@I.ir_module
class Refused:
    @R.function
    def f(x: R.Tensor((3,), "float32"), k: R.Tensor((3,), "int64")):
        y = R.exp(x)
        return (y, k)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"require_grads": "k"}, "the gradient with respect to k of f cannot be taken"),
        ({"require_grads": "x", "seeded": [1]}, "result 1 of f has no adjoint"),
        ({"require_grads": "x", "seeded": [2]}, "seeded 2 is outside the 2 results of f"),
        ({"require_grads": "x", "seeded": [0, 0]}, "twice"),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(DifferentiationError, match=message):
        SplitGradient("f", **arguments)(Refused)
