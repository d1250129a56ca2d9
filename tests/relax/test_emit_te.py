"""``BlockBuilder.emit_te``, ``call_te`` and ``call_te_with_grad``: kernels of tensor expressions, in every backend."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import relax, te, tir
from pullback.ir import ArgumentError, IRModule, assert_structural_equal
from pullback.relax.training.utils import register_te_gradient
from pullback.script import from_source
from pullback.script import relax as R


def add_scaled(a: te.Tensor, b: te.Tensor, scale: float = 1.0) -> te.Tensor:
    return te.compute(a.shape, lambda *i: a[i] + b[i] * scale, "sum")


def built(infos: list, body) -> IRModule:
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{k}", info) for k, info in enumerate(infos)]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(body(builder, *params))
        builder.emit_func_output(out)
    return builder.finalize()


def run(module: IRModule, *arrays: np.ndarray, name: str = "main") -> list:
    """The result of each backend."""
    results = []
    for target in ("debug", "llvm"):
        result = pullback.compile(module, target).function(name)(*arrays)
        results.append(result.numpy() if hasattr(result, "numpy") else [r.numpy() for r in result])
    return results


X, Y = np.arange(6, dtype="float32").reshape(2, 3), np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)


def test_emit_te():
    module = built([R.Tensor((2, 3))] * 2, lambda bb, x, y: bb.emit_te(add_scaled, x, y, scale=3.0))
    assert isinstance(module["add_scaled"], tir.PrimFunc) and "global_symbol" not in module["add_scaled"].attrs
    for result in run(module, X, Y):
        np.testing.assert_allclose(result, X + 3 * Y, rtol=1e-6)
    assert_structural_equal(from_source(module.script()), module)


def test_the_variable_and_the_call():
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((2, 3)))
    with builder.function("main", [x]):
        call = builder.call_te(add_scaled, x, x, primfunc_name_hint="twice")
        assert isinstance(call, relax.Call) and call.op.name == "relax.call_tir" and call.args[0].name == "twice"
        var = builder.emit_te(add_scaled, x, x)
        assert isinstance(var, relax.Var) and var.struct_info == R.Tensor((2, 3))
        builder.emit_func_output(builder.emit(R.add(call, var)))
    module = builder.get()
    assert list(module) == ["twice", "main"], "equal kernels are one"
    for result in run(module, X):
        np.testing.assert_allclose(result, 4 * X)


def test_lists_tuples_dicts_shapes_and_constants():
    def function(pair, options, shape, weights):
        a, b = pair
        assert shape == [2, 3] and options["factor"] == 2.0
        return te.compute(
            shape, lambda i, j: a[i, j] * options["factor"] + b[i, j] + options["c"][i, j] + weights[0][j]
        )

    def body(bb, x, y, t):
        options = {"factor": 2.0, "c": R.const(np.ones((2, 3), "float32"))}
        return bb.emit_te(function, [x, y], options, R.shape([2, 3]), t)

    infos = [R.Tensor((2, 3)), R.Tensor((2, 3)), R.Tuple(R.Tensor((3,)), R.Tensor((1,)))]
    module = built(infos, body)
    w = np.array([1.0, 2.0, 3.0], "float32")
    for target in ("debug", "llvm"):
        result = pullback.compile(module, target).function("main")(X, Y, (w, np.zeros(1, "float32")))
        np.testing.assert_allclose(result.numpy(), 2 * X + Y + 1 + w, rtol=1e-6)


def test_several_results():
    def both(a):
        return te.compute(a.shape, lambda i, j: a[i, j] + 1.0), te.compute((2,), lambda i: a[i, 0])

    module = built([R.Tensor((2, 3))], lambda bb, x: bb.emit_te(both, x))
    for target in ("debug", "llvm"):
        first, second = pullback.compile(module, target).function("main")(X)
        np.testing.assert_allclose(first.numpy(), X + 1)
        np.testing.assert_allclose(second.numpy(), X[:, 0])


def test_symbolic_sizes():
    n = tir.Var("n")
    rows = lambda a: te.compute((a.shape[0] * 2, 3), lambda i, j: a[i // 2, j] + 1.0, "rows")  # noqa: E731
    module = built([R.Tensor((n, 3))], lambda bb, x: bb.emit_te(rows, x))
    for result in run(module, X):
        np.testing.assert_allclose(result, np.repeat(X, 2, 0) + 1)


def test_a_size_that_no_buffer_has():
    n = tir.Var("n")

    def body(bb, x, y):
        return bb.emit_te(lambda a, size: te.compute(a.shape, lambda i, j: a[i, j] + tir.cast("float32", size)), x, n)

    module = built([R.Tensor((2, 3)), R.Tensor((n,))], body)
    for result in run(module, X, np.zeros(5, "float32")):
        np.testing.assert_allclose(result, X + 5)


@register_te_gradient("partb_sum_gradient")
def _gradient(dy, a, b, scale=1.0):
    twice = te.compute(a.shape, lambda *i: dy[i] * 7.0)  # no real gradient, so that it is seen which one is taken
    return twice, te.compute(b.shape, lambda *i: dy[i] * scale)


@pytest.mark.parametrize("registered", [False, True])
def test_gradients(registered):
    def body(bb, x, y):
        if registered:
            options = {"te_grad_name": "partb_sum_gradient", "te_grad_kwargs": {"scale": 3.0}}
            value = bb.emit(bb.call_te_with_grad(add_scaled, x, y, scale=3.0, **options))
        else:
            value = bb.emit_te(add_scaled, x, y, scale=3.0)
        return R.sum(value)

    module = relax.transform.Gradient("main")(built([R.Tensor((2, 3))] * 2, body))
    for target in ("debug", "llvm"):
        _, (dx, dy) = pullback.compile(module, target).function("main_adjoint")(X, Y)
        np.testing.assert_allclose(dx.numpy(), np.full((2, 3), 7.0 if registered else 1.0))
        np.testing.assert_allclose(dy.numpy(), np.full((2, 3), 3.0))


@pytest.mark.parametrize(
    ("infos", "body", "message"),
    [
        ([R.Tensor(ndim=1)], lambda bb, x: bb.emit_te(lambda a: a, x), "must be a tensor of known shape"),
        ([R.Tensor((3,))], lambda bb, x: bb.emit_te(lambda a: 1.0, x), "must return tensor expressions"),
        ([R.Object()], lambda bb, x: bb.emit_te(lambda a: a, x), "must be a tensor of known shape"),
    ],
)
def test_mistakes(infos, body, message):
    with pytest.raises(ArgumentError, match=message) as error:
        built(infos, body)
    assert error.value.hint
