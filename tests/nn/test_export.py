"""Exports: names, counts, symbolic batches, types of inputs, states, and errors with layer and line."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import nn
from pullback.ir.errors import ArgumentError, DTypeError, ShapeError, UserError
from pullback.relax import TensorStructInfo
from pullback.relax import op as R
from pullback.relax.struct_info import format_info
from pullback.script import from_source
from tests.helpers import round_trip


class Counter(nn.Module):
    def __init__(self):
        self.fc = nn.Linear(3, 2)
        self.count = nn.Buffer(np.zeros((), "int64"))
        self.fixed = nn.Buffer(np.ones(2, "float32"), persistent=False)

    def forward(self, x):
        self.count = self.count + 1
        return self.fc(x) * self.fixed


def types(module):
    return [(p.name, format_info(p.struct_info)) for p in module["backbone"].params]


def test_the_module_is_readable_and_counted():
    module = Counter().export(np.zeros((5, 3)))
    assert types(module) == [
        ("x", "Tensor((n, 3), float32)"), ("fc.weight", "Tensor((2, 3), float32)"),
        ("fc.bias", "Tensor((2,), float32)"), ("count", "Tensor((), int64)"),
    ]  # fmt: skip
    assert (module.attrs["param_num"], module.attrs["state_num"]) == (2, 1)
    text = module.script()
    assert "fc = R.linear(x, fc_weight, fc_bias)" in text
    assert [p.name for p in from_source(text)["backbone"].params] == [name for name, _ in types(module)]
    round_trip(module)


def test_the_batch_is_symbolic_unless_a_type_says_otherwise():
    net = nn.Linear(3, 2)
    assert types(net.export(np.zeros((5, 3))))[0][1] == "Tensor((n, 3), float32)"
    assert types(net.export(TensorStructInfo((5, 3), "float32")))[0][1] == "Tensor((5, 3), float32)"
    assert types(net.export(pullback.script.relax.Tensor(("k", 3), "float32")))[0][1] == "Tensor((k, 3), float32)"


class Mixed(nn.Module):
    """Takes rows and indices."""

    def __init__(self):
        self.table = nn.Parameter((10, 4))

    def forward(self, values, index):
        return R.take(self.table, index, axis=0) + values


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8", "bool", "int64"])
def test_what_a_layer_of_floats_takes_becomes_float32(dtype):
    assert types(nn.Linear(3, 2).export(np.zeros((5, 3), dtype)))[0] == ("input", "Tensor((n, 3), float32)")


def test_indices_stay_integers():
    found = types(Mixed().export(np.zeros((5, 4)), np.zeros(5, "int32")))
    assert found[:2] == [("values", "Tensor((n, 4), float32)"), ("index", "Tensor((n,), int32)")]


def test_parameters_of_float64_take_float64():
    module = nn.Linear(3, 2, dtype="float64").export(np.zeros((5, 3), "float32"))
    assert types(module)[0][1] == "Tensor((n, 3), float64)"


def test_types_that_are_asked_for_are_kept():
    with pytest.raises(DTypeError, match="linear"):
        nn.Linear(3, 2).export(TensorStructInfo((5, 3), "int64"))


def test_inputs_may_be_a_tuple():
    values, index = np.zeros((5, 4), "float32"), np.zeros(5, "int64")
    pullback.ir.assert_structural_equal(Mixed().export((values, index)), Mixed().export(values, index))
    with pytest.raises(ArgumentError, match=r"takes the inputs \(values, index\), got an example of 1"):
        Mixed().export(values)


def test_a_module_that_is_used_twice_shares_its_parameters():
    class Twice(nn.Module):
        def __init__(self):
            self.fc = nn.Linear(3, 3)

        def forward(self, x):
            return self.fc(self.fc(x))

    assert Twice().export(np.zeros((2, 3))).attrs["param_num"] == 2


def test_tied_weights_are_one_parameter():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    module = net.export(np.zeros((2, 3)))
    assert [n for n, _ in types(module)][1:] == ["0.weight", "0.bias", "1.bias"]
    assert module.attrs["aliases"] == {"1.weight": "0.weight"}
    assert set(net.state_dict()) == {"0.weight", "0.bias", "1.weight", "1.bias"}
    net.load_state_dict({"0.weight": np.ones((3, 3)), "0.bias": np.zeros(3), "1.bias": np.zeros(3)})
    assert (net[1].weight.numpy() == 1).all()


def test_a_state_of_a_module_that_is_called_twice_counts_twice():
    inner = Counter()

    class Outer(nn.Module):
        def __init__(self):
            self.inner = inner

        def forward(self, x):
            return self.inner(x) + self.inner(x)

    trainer = pullback.trainer(Outer(), "mse", "sgd", example=np.zeros((4, 3)), target="debug")
    trainer.update(np.zeros((4, 3), "float32"), np.zeros((4, 2), "float32"))
    assert trainer.states["inner.count"].numpy() == 2


def test_a_value_that_is_drawn_is_drawn_once():
    class Noisy(nn.Module):
        def forward(self, x):
            h = R.nn.dropout(x, rate=0.5)[0]
            return h, h * 1.0

    text = Noisy().export(np.zeros((2, 3))).script()
    assert text.count("dropout") == 1


def test_non_persistent_buffers_are_constants_and_cannot_change():
    assert "fixed" not in [n for n, _ in types(Counter().export(np.zeros((2, 3))))]

    class Bad(nn.Module):
        def __init__(self):
            self.b = nn.Buffer(np.zeros(3, "float32"), persistent=False)

        def forward(self, x):
            self.b = self.b + 1
            return x

    with pytest.raises(UserError, match="buffer b is assigned in forward"):
        Bad().export(np.zeros((2, 3)))


# ---- mistakes --------------------------------------------------------------------------------------------------------


def refused(forward, match, error=UserError, init=None):
    """The error that a module with this forward raises, which names this file."""
    made = type("Model", (nn.Module,), {"forward": forward} | ({"__init__": init} if init else {}))()
    with pytest.raises(error, match=match) as caught:
        made.export(np.zeros((2, 3)))
    return str(caught.value)


def test_data_dependent_control_flow():
    def forward(self, x):
        if x.sum() > 0:
            return x
        return -x

    text = refused(forward, "no truth value")
    assert "if x.sum() > 0:" in text
    assert "test_export.py" in text


def test_layers_that_are_not_registered():
    def init(self):
        self.layers = [nn.Linear(3, 3)]

    text = refused(lambda self, x: self.layers[0](x), "its parameters would not be trained", init=init)
    assert "nn.ModuleList" in text
    assert "test_export.py" in text
    refused(lambda self, x: nn.Linear(3, 3)(x), "no part of the model")


def test_parameters_that_are_not_registered():
    loose = nn.Parameter(np.ones(3, "float32"))
    refused(lambda self, x: x * loose, "no module holds it")


def test_parameters_are_not_assigned():
    def init(self):
        self.w = nn.Parameter((3,))

    def forward(self, x):
        self.w = self.w + 1
        return x

    refused(forward, "only the optimizer changes", init=init)


def test_buffers_keep_their_type():
    def init(self):
        self.b = nn.Buffer(np.zeros((), "int64"))

    def forward(self, x):
        self.b = x.sum()
        return x

    refused(forward, "cannot become", init=init)


@pytest.mark.parametrize(
    ("result", "match"), [(None, "returns None"), (3.0, "returns float"), ({"a": 1}, "returns a dict")]
)
def test_results_are_tensors(result, match):
    refused(lambda self, x: result, match)


def test_shapes_that_do_not_fit_name_the_layer_and_the_line():
    class Model(nn.Module):
        def __init__(self):
            self.body = nn.Sequential(nn.Linear(3, 8), nn.Linear(9, 2))

        def forward(self, x):
            return self.body(x)

    with pytest.raises(
        ShapeError, match=r"body.1 \(Linear\): in_features is 9, got an input of shape \(n, 8\)"
    ) as caught:
        Model().export(np.zeros((2, 3)))
    assert "return self.body(x)" in str(caught.value)


def test_a_module_without_a_forward():
    with pytest.raises(UserError, match="Module has no forward"):
        nn.Module().export(np.zeros((2, 3)))
    with pytest.raises(ArgumentError, match="needs an example"):
        nn.Linear(1, 1).export()


def test_graph_values_outside_of_an_export():
    x = pullback.relax.Var("x", TensorStructInfo((2, 3), "float32"))
    with pytest.raises(UserError, match="no model is being exported"):
        nn.Linear(3, 2)(x)


@pytest.mark.parametrize("function", [np.exp, np.mean, lambda x: np.concatenate([x, x])])
def test_functions_of_numpy_are_refused_with_what_to_write(function):
    refused(lambda self, x: function(x), "of NumPy computes with arrays")


def test_arrays_beside_graph_values_are_constants():
    shift = np.ones(3, "float32")
    net = nn.Lambda(lambda x: np.float32(2.0) * (shift + x) - shift @ np.eye(3, dtype="float32"))
    x = np.arange(6, dtype="float32").reshape(2, 3)
    np.testing.assert_allclose(net(x).numpy(), 2 * (x + 1) - 1)


def test_examples_that_are_none():
    net = nn.Linear(3, 2)
    with pytest.raises(ArgumentError, match=r"is the shape \(64, 3\), not an array(.|\n)*np.zeros"):
        net.export((64, 3))
    with pytest.raises(ArgumentError, match="the example has the inputs y, the model takes input"):
        net.export({"y": np.zeros((2, 3))})
    pullback.ir.assert_structural_equal(net.export({"input": np.zeros((2, 3))}), net.export(np.zeros((2, 3))))
    with pytest.raises(DTypeError, match="the example of input input"):
        net.export("text")
