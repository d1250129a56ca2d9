"""The fragments of the reference's thread "Training in Relay" (`003`), with the package renamed and nothing else.

Those that failed there work here. Lines are those of the document.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as tvm
from pullback import relay
from pullback.relay.op import collapse_sum_like, register_gradient, transpose
from pullback.relay.op.registry import Op

target = TARGET = "llvm"
CTX = tvm.cpu()


@pytest.fixture
def model() -> tuple[Any, dict[str, Any], np.ndarray]:
    """A few affine layers with a sigmoid output (line 7), its parameters and a row of data."""
    rng = np.random.default_rng(3)
    data, hidden = relay.var("data", shape=(1, 4)), relay.var("w1", shape=(5, 4))
    bias, out, bias2 = relay.var("b1", shape=(5,)), relay.var("w2", shape=(1, 5)), relay.var("b2", shape=(1,))
    h = relay.tanh(relay.nn.bias_add(relay.nn.dense(data, hidden, units=5), bias))
    y = relay.sigmoid(relay.nn.bias_add(relay.nn.dense(h, out, units=1), bias2))
    func = relay.Function([data, hidden, bias, out, bias2], y)
    shapes = {"w1": (5, 4), "b1": (5,), "w2": (1, 5), "b2": (1,)}
    params = {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    return func, params, rng.standard_normal((1, 4))


def loss_and_gradient(label: float, data: np.ndarray, params: dict[str, Any]) -> tuple[float, dict[str, np.ndarray]]:
    """Binary cross-entropy of the model in float64, and its gradient."""
    p = {name: np.asarray(value, "float64") for name, value in params.items()}
    h = np.tanh(data @ p["w1"].T + p["b1"])
    y_hat = 1 / (1 + np.exp(-(h @ p["w2"].T + p["b2"])))
    dz = y_hat - label
    dh = dz @ p["w2"] * (1 - h * h)
    gradient = {"w1": dh.T @ data, "b1": dh[0], "w2": dz.T @ h, "b2": dz[0], "data": dh @ p["w1"]}
    loss = -(label * np.log(y_hat) + (1 - label) * np.log(1 - y_hat))
    return float(loss[0, 0]), gradient


def test_loss_that_reuses_the_parameters(model: Any) -> None:
    """Lines 11-23: the reference fails ("Check failed: WellFormed"): the loss has the parameters of what it calls."""
    func, params, data = model
    # 11: func is my converted model that outputs a single sigmoid activation value, …
    shape = (1, 1)
    dtype = "float32"
    t = relay.TensorType(shape, dtype)
    y = relay.var("y", t)
    loss_func = relay.Function(
        [y, *func.params],
        -(y * relay.op.log(func(*func.params)) + (relay.const(1.0) - y) * relay.op.log(relay.const(1.0) - func(*func.params))),  # noqa: E501
    )  # fmt: skip

    ex = relay.create_executor(target=target)
    label = np.array([[1]]).astype("float32")
    res = ex.evaluate(loss_func)(tvm.nd.array(label), tvm.nd.array(data.astype(dtype)), **params)
    np.testing.assert_allclose(res.numpy(), [[loss_and_gradient(1, data, params)[0]]], rtol=1e-5)


def np_to_relay(data: Any, dtype: str = "float32") -> Any:
    return tvm.nd.array(data.astype(dtype))


def add_loss_func(model_func: Any) -> Any:
    y = relay.var("y", shape=(1, 1))
    y_hat = model_func.body
    loss = - (y * relay.log(y_hat) + (relay.const(1.0) - y) * relay.log(relay.const(1.0) - y_hat))  # fmt: skip
    return relay.Function([y, *model_func.params], loss)


def backprop_relay(model_func: Any, label: Any, data: Any, params: Any) -> Any:
    loss_func = add_loss_func(model_func)
    gradient_func = relay.ir_pass.infer_type(relay.ir_pass.gradient(loss_func))
    return relay.create_executor(target=TARGET, ctx=CTX).evaluate(gradient_func)(
        np_to_relay(np.array([[label]])), np_to_relay(data), **params
    )


@pytest.mark.parametrize("label", [0, 1])
def test_gradient_of_the_loss(model: Any, label: int) -> None:
    """Lines 59-73."""
    func, params, data = model
    loss, (_, *gradients) = backprop_relay(func, label, data, params)
    wanted, by_name = loss_and_gradient(label, data, params)
    np.testing.assert_allclose(loss.numpy(), [[wanted]], rtol=1e-5)
    for param, found in zip(func.params, gradients, strict=True):
        np.testing.assert_allclose(found.numpy(), by_name[param.name_hint], rtol=1e-4, atol=1e-6)


def test_type_of_a_gradient_function(model: Any) -> None:
    """``fn(params…) -> (original result, (adjoint of each param…))``."""
    func, _, _ = model
    type_ = relay.ir_pass.infer_type(relay.ir_pass.gradient(func)).checked_type
    arguments = tuple(p.type_annotation for p in func.params)
    result = relay.TupleType((relay.TensorType((1, 1)), relay.TupleType(arguments)))
    assert type_ == relay.FuncType(arguments, result)


def test_building_a_gradient_function(model: Any) -> None:
    """Lines 33 and 77: both calls fail in the reference (FoldScaleAxis; plan of memory)."""
    func, params, data = model
    gradient_func = relay.ir_pass.infer_type(relay.ir_pass.gradient(add_loss_func(func)))
    graph, lib, params_left = relay.build_module.build(gradient_func, target=target, params=params)
    assert isinstance(graph, str)
    again = relay.build_module.build(gradient_func, TARGET, params=params)
    wanted, _ = loss_and_gradient(1, data, params)
    unpacked = tvm.contrib.graph_executor.create(graph, lib, CTX)
    unpacked.set_input(**params_left)
    for module in (unpacked, tvm.contrib.graph_executor.GraphModule(again["default"](CTX))):
        module.set_input("y", np.array([[1]], "float32"))
        module.set_input("data", data.astype("float32"))
        module.run()
        np.testing.assert_allclose(module.get_output(0).numpy(), [[wanted]], rtol=1e-5)


def test_gradients_of_operators(model: Any) -> None:
    """Lines 133-150: rules of one's own, which replace those that there are."""
    called: list[str] = []
    kept = {name: Op.registry[name].get_attr("FPrimalGradient") for name in ("nn.dense", "nn.bias_add", "negative")}
    try:

        @register_gradient("nn.dense", level=11)
        def dense_grad(orig: Any, grad: Any) -> Any:
            called.append("nn.dense")
            data, weight = orig.args
            return [collapse_sum_like(transpose(transpose(weight) * grad), data),
                    collapse_sum_like(transpose(grad * transpose(data)), weight)]  # fmt: skip

        @register_gradient("nn.bias_add", level=11)
        def bias_grad(orig: Any, grad: Any) -> Any:
            called.append("nn.bias_add")
            data, bias = orig.args
            return [collapse_sum_like(grad, data),
                    collapse_sum_like(grad, bias)]  # fmt: skip

        @register_gradient("negative", level=11)
        def negative_grad(orig: Any, grad: Any) -> Any:
            """Returns [-grad]"""
            called.append("negative")
            return [-grad]

        func, params, data = model
        loss, (_, *gradients) = backprop_relay(func, 1, data, params)
    finally:
        for name, rule in kept.items():
            register_gradient(name, rule, level=12)
    assert set(called) == {"nn.dense", "nn.bias_add", "negative"}
    wanted, by_name = loss_and_gradient(1, data, params)
    np.testing.assert_allclose(loss.numpy(), [[wanted]], rtol=1e-5)
    for param, found in zip(func.params, gradients, strict=True):
        np.testing.assert_allclose(found.numpy(), by_name[param.name_hint], rtol=1e-4, atol=1e-6)


def test_reads_and_writes_go_by_partial_evaluation(model: Any) -> None:
    """Line 156: "you should be able to remove ref reads/writes with PartialEvaluate and DeadCodeElimination"."""
    func, params, data = model
    mod = tvm.IRModule.from_expr(relay.transform.gradient(add_loss_func(func)))
    passes = [relay.transform.PartialEvaluate(), relay.transform.DeadCodeElimination(ignore_impurity=True)]
    straight = tvm.transform.Sequential(passes)(relay.transform.InferType()(mod))["main"]
    kinds: set[type] = set()
    relay.analysis.post_order_visit(straight, lambda e: kinds.add(type(e)))
    assert not kinds & {relay.RefCreate, relay.RefRead, relay.RefWrite, relay.If, relay.Match}
    loss, _ = relay.create_executor("graph").evaluate(straight)(
        np_to_relay(np.array([[1]])), np_to_relay(data), **params
    )
    np.testing.assert_allclose(loss.numpy(), [[loss_and_gradient(1, data, params)[0]]], rtol=1e-5)


def test_ahead_of_time(model: Any) -> None:
    """Lines 189-191: aot of a gradient function; positional arguments as there, and keywords, which failed."""
    from pullback.relay import aot

    func, params, data = model
    gradient_func = relay.ir_pass.infer_type(relay.ir_pass.gradient(add_loss_func(func)))
    compiled = aot.compile(gradient_func, tvm.IRModule(), CTX, tvm.target.Target(TARGET))
    wanted, by_name = loss_and_gradient(1, data, params)
    arguments = [np.array([[1]], "float32"), data.astype("float32")]
    loss, gradients = compiled(*arguments, *params.values())
    np.testing.assert_allclose(loss.numpy(), [[wanted]], rtol=1e-5)
    np.testing.assert_allclose(gradients[2].numpy(), by_name["w1"], rtol=1e-4, atol=1e-6)
    loss, _ = compiled(*arguments, **params)
    np.testing.assert_allclose(loss.numpy(), [[wanted]], rtol=1e-5)
