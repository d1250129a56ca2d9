"""relay.testing and testing: models with initial values, checks of gradients, targets and marks of tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback import relay, testing
from pullback.ir.errors import ArgumentError, PullbackError
from pullback.relay.testing import Xavier, check_grad, count_ops, create_workload, rand, run_infer_type, run_opt_pass
from pullback.relay.testing import init as initial
from pullback.relay.ty import TensorType
from tests.relay.differences import run

SMALL = {  # the model, its arguments, the shapes of its data, that of its result, how many parameters it has
    "mlp": ({"batch_size": 2}, [(2, 1, 28, 28)], (2, 10), 6),
    "resnet": ({"num_layers": 8, "image_shape": (3, 8, 8), "num_classes": 5}, [(1, 3, 8, 8)], (1, 5), 44),
    "mobilenet": ({"image_shape": (3, 32, 32), "num_classes": 4}, [(1, 3, 32, 32)], (1, 4), 137),
    "lstm": ({"iterations": 2, "num_hidden": 3, "batch_size": 2}, [(2, 3), (2, 3)], (2, 3), 8),
    "dcgan": ({"batch_size": 1, "ngf": 2, "random_len": 6}, [(1, 6)], (1, 3, 64, 64), 17),
    "dqn": ({"batch_size": 1, "num_actions": 3, "image_shape": (4, 36, 36)}, [(1, 4, 36, 36)], (1, 3), 10),
    "synthetic": ({}, [(1, 3, 24, 12)], (1, 3, 24, 12), 9),
    "squeezenet": ({"image_shape": (3, 32, 32), "version": "1.1", "num_classes": 3}, [(1, 3, 32, 32)], (1, 3), 52),
}


@pytest.mark.parametrize("name", SMALL)
def test_models(name: str) -> None:
    attrs, shapes, result, count = SMALL[name]
    mod, params = getattr(relay.testing, name).get_workload(**attrs)
    main = mod["main"]
    assert main.body.checked_type == TensorType(result) and len(params) == count
    assert [p.checked_type.shape for p in main.params if p.name_hint == "data"] == shapes
    rng = np.random.default_rng(0)
    data = iter([rng.normal(size=s).astype("float32") for s in shapes])
    args = [next(data) if p.name_hint == "data" else params[p.name_hint].numpy() for p in main.params]
    found = run(main, *args)
    assert found.shape == result and np.isfinite(found).all()
    if name in ("mlp", "resnet", "mobilenet", "squeezenet"):
        np.testing.assert_allclose(found.sum(1), 1, rtol=1e-4)


@pytest.mark.parametrize("name", ["resnet", "mobilenet"])
def test_models_in_another_layout(name: str) -> None:
    """With the same weights in the other layout the result is the same."""
    attrs = {"image_shape": (3, 16, 16), "num_classes": 4} | ({"num_layers": 8} if name == "resnet" else {})
    model = getattr(relay.testing, name)
    mod, params = model.get_workload(**attrs)
    other, _ = model.get_workload(**attrs | {"image_shape": (16, 16, 3), "layout": "NHWC"})
    data = np.random.default_rng(0).normal(size=(1, 3, 16, 16)).astype("float32")
    values = {k: v.numpy() for k, v in params.items()}

    def turned(param: Any) -> np.ndarray:
        if param.name_hint == "data":
            return data.transpose(0, 2, 3, 1)
        value = values[param.name_hint]
        if value.ndim != 4:
            return value
        depthwise = value.shape[1] == 1 and param.checked_type.shape[2] == value.shape[0]
        return value.transpose(2, 3, 0, 1) if depthwise else value.transpose(2, 3, 1, 0)

    first = run(mod["main"], *[data if p.name_hint == "data" else values[p.name_hint] for p in mod["main"].params])
    second = run(other["main"], *[turned(p) for p in other["main"].params])
    np.testing.assert_allclose(second, first, rtol=1e-3, atol=1e-5)


def test_large_models_have_their_sizes() -> None:
    """The numbers of parameters of the published networks."""
    for net, count in (
        (relay.testing.resnet.get_net(1, 1000, 18), 11_689_512),
        (relay.testing.resnet.get_net(1, 1000, 50), 25_557_032),
        (relay.testing.mobilenet.mobile_net(), 4_231_976),
        (relay.testing.vgg.get_net(1, (3, 224, 224), 1000, "float32", 16), 138_357_544),
        (relay.testing.squeezenet.get_net(1, (3, 224, 224), 1000, "1.1", "float32"), 1_235_496),
    ):
        typed = run_infer_type(net)
        trained = [p for p in typed.params if p.name_hint.endswith(("weight", "bias", "gamma", "beta"))]
        sizes = sum(int(np.prod(p.checked_type.shape)) for p in trained)
        assert abs(sizes - count) <= 0.004 * count, sizes


def test_lstm_against_torch() -> None:
    torch = pytest.importorskip("torch")
    hidden = 4
    cell = torch.nn.LSTMCell(hidden, hidden)
    x, h, c = (torch.randn(2, hidden) for _ in range(3))
    parameters = [cell.weight_ih, cell.bias_ih, cell.weight_hh, cell.bias_hh]
    with torch.no_grad():
        expected = cell(x, (h, c))
    function = run_infer_type(relay.testing.lstm.lstm_cell(hidden, 2))
    args = [x.numpy(), (h.numpy(), c.numpy()), *(p.detach().numpy() for p in parameters)]
    out, (next_h, next_c) = run(function, *args)
    for found, wanted in ((out, expected[0]), (next_h, expected[0]), (next_c, expected[1])):
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: relay.testing.resnet.get_net(1, 10, 17), "no resnet of 17 layers"),
        (lambda: relay.testing.resnet.get_net(1, 10, 9, (3, 28, 28)), "for small images"),
        (lambda: relay.testing.vgg.get_net(1, (3, 32, 32), 10, "float32", 12), "no vgg of 12 layers"),
        (lambda: relay.testing.squeezenet.get_net(1, (3, 32, 32), 10, "2.0", "float32"), "version '2.0'"),
        (lambda: relay.testing.densenet.get_workload(100), "no densenet of 100 layers"),
        (lambda: relay.testing.dcgan.get_net(1, oshape=(3, 32, 32)), "64 × 64"),
        (lambda: relay.testing.layers.conv_kernel_layout("CHWN"), "no kernel layout for 'CHWN'"),
        (lambda: relay.testing.layers.conv2d(relay.var("x"), channels=3), "a layer needs a name"),
        (lambda: relay.testing.yolo, "there is no relay.testing.yolo"),
    ],
)
def test_what_there_is_not(call: Any, words: str) -> None:
    with pytest.raises(PullbackError) as raised:
        call()
    assert words in str(raised.value)


# -- initial values


def test_initial_values() -> None:
    net = relay.testing.resnet.get_net(1, 5, 8, (3, 8, 8))
    _, params = create_workload(net, seed=3)
    _, again = create_workload(net, seed=3)
    _, others = create_workload(net, seed=4)
    for name, value in params.items():
        np.testing.assert_array_equal(value.numpy(), again[name].numpy())
    assert (others["fc1_weight"].numpy() != params["fc1_weight"].numpy()).any()
    assert (params["bn1_gamma"].numpy() == 1).all() and (params["bn1_beta"].numpy() == 0).all()
    assert (params["bn1_moving_var"].numpy() == 1).all() and (params["fc1_bias"].numpy() == 0).all()


@pytest.mark.parametrize("kind", ["uniform", "gaussian"])
@pytest.mark.parametrize(("factor_type", "factor"), [("in", 50 * 9), ("out", 40 * 9), ("avg", 45 * 9)])
def test_xavier(kind: str, factor_type: str, factor: float) -> None:
    weight = np.zeros((40, 50, 3, 3))
    Xavier(kind, factor_type, magnitude=2)("conv_weight", weight)
    variance = 2 / factor / (3 if kind == "uniform" else 1)
    assert abs(weight.var() / variance - 1) < 0.05 and abs(weight.mean()) < 0.01


def test_xavier_refuses() -> None:
    with pytest.raises(ArgumentError, match="two axes or more"):
        Xavier()("a_weight", np.zeros(3))
    with pytest.raises(ArgumentError, match="no initial value is known for the parameter 'momentum'"):
        Xavier()("momentum", np.zeros(3))
    with pytest.raises(ArgumentError, match="rnd_type"):
        Xavier("triangular")
    with pytest.raises(ArgumentError, match="factor_type"):
        Xavier(factor_type="most")


def test_constant_weights() -> None:
    x = relay.var("data", shape=(2, 3))
    net = relay.Function([x, w := relay.var("w_weight")], relay.nn.dense(x, w, units=4))
    _, params = create_workload(net, initial.Constant(0.5))
    np.testing.assert_array_equal(params["w_weight"].numpy(), np.full((4, 3), 0.5, "float32"))


# -- checks


def test_check_grad() -> None:
    x = relay.var("x", shape=(2, 3), dtype="float64")
    for mode in ("higher_order", "first_order"):
        check_grad(relay.Function([x], relay.sigmoid(x)), mode=mode)


def test_check_grad_of_some_inputs() -> None:
    x, i = relay.var("x", shape=(4, 2), dtype="float64"), relay.var("i", shape=(3,), dtype="int32")
    data, places = np.random.default_rng(0).normal(size=(4, 2)), np.array([1, 3, 1], "int32")
    function = relay.Function([x, i], relay.take(x, i, axis=0))
    check_grad(function, inputs=[data, places], test_inputs=[data])
    with pytest.raises(ArgumentError, match="test_inputs must be arrays of inputs"):
        check_grad(function, inputs=[data, places], test_inputs=[data.copy()])


def test_check_grad_finds_a_wrong_gradient() -> None:
    op = relay.op.get("atan")
    right = op.get_attr("FPrimalGradient")
    x = relay.var("x", shape=(3,), dtype="float64")
    try:
        op.set_attr("FPrimalGradient", lambda orig, grad: [grad * relay.const(2.0, "float64")])
        with pytest.raises(AssertionError, match="Not equal"):
            check_grad(relay.Function([x], relay.atan(x)))
    finally:
        op.set_attr("FPrimalGradient", right)
    check_grad(relay.Function([x], relay.atan(x)))


def test_passes_of_one_expression() -> None:
    x = relay.var("x", shape=(2, 3))
    assert run_infer_type(relay.log(x)).checked_type == TensorType((2, 3))
    function = run_opt_pass(relay.Function([x], relay.log(x) * relay.log(x)), relay.transform.ToANormalForm())
    assert isinstance(function, relay.Function) and isinstance(function.body, relay.Let)
    with pytest.raises(ArgumentError, match="str is no pass"):
        run_opt_pass(x, "ToANormalForm")


def test_counts_and_numbers() -> None:
    x = relay.var("x", shape=(2, 3))
    y = relay.log(x)
    assert count_ops(relay.add(y, relay.multiply(y, y))) == {"log": 1, "add": 1, "multiply": 1}
    drawn = rand("float64", 4, 5)
    assert drawn.shape == (4, 5) and drawn.dtype == "float64"
    assert relay.testing.ctx_list() == testing.enabled_targets()


def test_an_attribute_for_the_time_of_a_block() -> None:
    op = relay.op.get("atan")
    before = op.get_attr("FPrimalGradient")
    with relay.testing.temp_op_attr.TempOpAttr("atan", "FPrimalGradient", len):
        assert op.get_attr("FPrimalGradient") is len
    with pytest.raises(KeyError), relay.testing.temp_op_attr.TempOpAttr("atan", "Own", 3):
        assert op.get_attr("Own") == 3
        raise KeyError
    assert op.get_attr("FPrimalGradient") is before and not op.has_attr("Own")


def test_run_as_python() -> None:
    assert relay.testing.run_as_python(relay.const(1.0) + relay.const(2.0)).numpy() == 3
    x = relay.var("x", shape=())
    double = relay.testing.run_as_python(relay.Function([x], x + x))
    assert double(np.float32(2)).numpy() == 4


# -- pullback.testing


def test_comparison() -> None:
    testing.assert_allclose(relay.const(np.ones(2)).data, [1.0, 1.0 + 1e-9])
    with pytest.raises(AssertionError, match="shapes differ"):
        testing.assert_allclose(np.ones(2), np.ones((1, 2)))
    with pytest.raises(AssertionError, match="Not equal"):
        testing.assert_allclose(np.ones(2), np.zeros(2))


def test_numerical_gradients() -> None:
    x, y = np.array([0.5, -1.0]), np.array([2.0, 3.0])

    def function(a: np.ndarray, b: np.ndarray) -> float:
        return float((a**2 * b).sum())

    testing.check_numerical_grads(function, [x, y], [2 * x * y, x**2])
    testing.check_numerical_grads(function, {"a": x, "b": y}, {"a": 2 * x * y, "b": x**2}, function(x, y))
    with pytest.raises(AssertionError, match=r"the gradient of 1 differs at 2 of 2 places, first at \(0,\)"):
        testing.check_numerical_grads(function, [x, y], [2 * x * y, 3 * x**2])
    with pytest.raises(AssertionError, match="has the shape"):
        testing.check_numerical_grads(function, [x, y], [2 * x * y, np.ones(3)])
    with pytest.raises(ArgumentError, match="must correspond"):
        testing.check_numerical_grads(function, [x, y], [x])


@testing.parametrize_targets("llvm", "cuda")
def test_targets(target: str, dev: Any) -> None:
    assert target == "llvm" and str(dev) == "cpu(0)"  # cuda is skipped


@testing.parametrize_targets
def test_all_targets(target: str, dev: Any) -> None:
    assert testing.device_enabled(target) and (target, dev) in testing.enabled_targets()


@testing.requires_gpu
def test_of_a_gpu() -> None:
    raise AssertionError("there is none")


@testing.requires_package("no_such_package")
def test_of_a_package() -> None:
    raise AssertionError("there is none")


def test_requirements() -> None:
    assert testing.requires_llvm.met and testing.requires_package("numpy").met
    assert not testing.requires_cuda.met and not testing.device_enabled("cuda -arch=sm_80")
    assert testing.requires_cuda() is not None and len(testing.requires_cuda.marks()) == 1
    assert testing.uses_gpu(len) is len
    with pytest.raises(AttributeError, match="requires_magic"):
        _ = testing.requires_magic


size = testing.parameter(1, 3)
named = testing.parameter(by_dict={"one": 10, "two": 20})
rows, columns = testing.parameters((2, 3), (4, 5))


@testing.fixture(cache_return_value=True)
def table(size: int) -> list[int]:
    return [size]


def test_parameters(size: int, named: int, rows: int, columns: int, table: list[int]) -> None:
    assert size in (1, 3) and named in (10, 20) and (rows, columns) in ((2, 3), (4, 5)) and table == [size]
