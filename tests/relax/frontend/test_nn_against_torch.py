"""Layers under TVM's names beside PyTorch's, and what export_tvm makes of methods."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pullback
from pullback import nn as own
from pullback import relax
from pullback.ir.errors import ArgumentError, NameNotFound, UserError
from pullback.relax.frontend import nn
from pullback.relax.frontend.nn import spec
from tests.nn.test_attention_against_torch import Ours, Theirs
from tests.nn.twins import assert_twins

RNG = np.random.default_rng(0)
F = torch.nn.functional


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.relu, self.fc2 = nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.fc2(self.relu(self.fc1(x)))

    def probabilities(self, x: nn.Tensor, temperature: nn.Tensor, scale: float = 1.0) -> Any:
        logits = self.forward(x)
        return nn.softmax(logits / temperature * scale, axis=-1), logits


def run(module: Any, name: str, *arrays: Any, params: Any = (), target: str = "debug") -> Any:
    return pullback.compile(module, target).function(name)(*arrays, *(p.data for _, p in params))


def test_export_tvm():
    net = MLP()
    module, params = net.export_tvm(
        spec={
            "forward": {"x": spec.Tensor(["n", 6], "float32")},
            "probabilities": {"x": spec.Tensor(("n", 6), "float32"), "temperature": spec.Tensor([], "float32")},
        }
    )
    assert [name for name, _ in params] == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    assert all(isinstance(p, own.Parameter) for _, p in params)
    assert {name: f.attrs["num_input"] for name, f in module.items()} == {"forward": 1, "probabilities": 2}
    assert [p.name for p in module["forward"].params] == ["x", *(name for name, _ in params)]
    x = RNG.normal(size=(4, 6)).astype("float32")
    weights = [p.numpy() for _, p in params]
    logits = np.maximum(x @ weights[0].T + weights[1], 0) @ weights[2].T + weights[3]
    np.testing.assert_allclose(run(module, "forward", x, params=params, target="llvm").numpy(), logits, rtol=1e-5)
    found, same = run(module, "probabilities", x, np.float32(2.0), params=params)
    np.testing.assert_allclose(same.numpy(), logits, rtol=1e-5)
    np.testing.assert_allclose(found.numpy(), torch.tensor(logits / 2).softmax(-1).numpy(), rtol=1e-5)


def test_tuples_are_arguments():
    class Sum(nn.Module):
        def forward(self, pair: Any, rest: Any) -> Any:
            return pair[0] + pair[1] * rest

    given = [spec.Tensor(["n"], "float32"), spec.Tensor(["n"], "float32")]
    x = np.arange(3, dtype="float32")
    for elements in (given, tuple(given), spec.Tuple("pair", given)):
        module, params = Sum().export_tvm({"forward": {"rest": spec.Tensor(["n"], "float32"), "pair": elements}})
        assert not params
        assert run(module, "forward", (x, x), x).numpy().tolist() == (x + x * x).tolist()


def test_a_trainer_takes_it():
    net = MLP()
    x, y = RNG.normal(size=(8, 6)).astype("float32"), np.arange(8) % 3
    trainer = pullback.trainer(net, "cross_entropy", "adam", example=x, target="debug")
    assert trainer.update(x, y) > trainer.update(x, y)
    module, params = net.export_tvm({"forward": {"x": spec.Tensor([8, 6], "float32")}})
    np.testing.assert_allclose(
        run(module, "forward", x, params=params).numpy(), trainer.predict(x).numpy(), rtol=1e-5
    )  # values that were trained


LAYERS = {
    "Linear": (nn.Linear(4, 3), torch.nn.Linear(4, 3), (2, 4)),
    "Linear without bias": (nn.Linear(4, 3, False, "float64"), torch.nn.Linear(4, 3, bias=False), (2, 5, 4)),
    "Conv1D": (nn.Conv1D(2, 4, 3, 2, 1, 1, 2), torch.nn.Conv1d(2, 4, 3, 2, 1, 1, 2), (2, 2, 7)),
    "Conv2D": (nn.Conv2D(3, 4, 3, padding=1), torch.nn.Conv2d(3, 4, 3, padding=1), (2, 3, 5, 5)),
    "Conv3D": (nn.Conv3D(2, 3, 2, bias=False), torch.nn.Conv3d(2, 3, 2, bias=False), (1, 2, 3, 3, 3)),
    "ConvTranspose1D": (
        nn.ConvTranspose1D(4, 2, 3, 2, 1, 1, 1, 2),
        torch.nn.ConvTranspose1d(4, 2, 3, 2, 1, 1, 2),
        (2, 4, 5),
    ),
    "LayerNorm": (nn.LayerNorm(6), torch.nn.LayerNorm(6), (2, 6)),
    "LayerNorm bare": (nn.LayerNorm(6, 1e-3, False), torch.nn.LayerNorm(6, 1e-3, False), (2, 6)),
    "RMSNorm": (nn.RMSNorm(6, -1, 1e-5, bias=False), torch.nn.RMSNorm(6, 1e-5), (2, 6)),
    "GroupNorm": (nn.GroupNorm(2, 4), torch.nn.GroupNorm(2, 4), (2, 4, 3, 3)),
    "Embedding": (nn.Embedding(5, 3), torch.nn.Embedding(5, 3), np.array([[0, 4], [2, 2]])),
    "ReLU": (nn.ReLU(), torch.nn.ReLU(), (2, 3)),
    "SiLU": (nn.SiLU(), torch.nn.SiLU(), (2, 3)),
    "GELU": (nn.GELU(), torch.nn.GELU(), (2, 3)),
    "Identity": (nn.Identity(), torch.nn.Identity(), (2, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    ours, theirs, given = LAYERS[name]
    assert isinstance(ours, nn.Module)
    assert_twins(ours, theirs, given)


def turned(function: Any) -> Any:
    """PyTorch's attention with TVM's axes."""
    return lambda *x, **o: function(*(t.transpose(1, 2) for t in x), **o).transpose(1, 2)


FUNCTIONS = {
    "matmul": (lambda x, y: nn.matmul(x, nn.permute_dims(y)), lambda x, y: x @ y.T, [(2, 3), (4, 3)]),
    "elementwise": (
        lambda x: nn.add(nn.multiply(nn.exp(x), nn.sigmoid(x)), nn.sqrt(nn.square(x))),
        lambda x: x.exp() * x.sigmoid() + x.abs(),
        [(2, 3)],
    ),
    "reductions": (lambda x: nn.sum(x, axis=1) + nn.max(x, axis=1), lambda x: x.sum(1) + x.amax(1), [(2, 3)]),
    "split": (lambda x: nn.split(x, 3, axis=1)[1] * nn.split(x, [2], 1)[0], lambda x: x[:, 2:4] * x[:, :2], [(2, 6)]),
    "chunk": (lambda x: nn.concat(nn.chunk(x, 2, dim=1)[::-1], 1), lambda x: torch.cat(x.chunk(2, 1)[::-1], 1),
              [(2, 6)]),
    "shapes": (
        lambda x: nn.squeeze(nn.unsqueeze(nn.permute(nn.reshape(x, (3, 2)), [1, 0]), 0), 0),
        lambda x: x.reshape(3, 2).T,
        [(2, 3)],
    ),
    "gelu": (lambda x: nn.gelu(x, "tanh") + nn.gelu(x),
             lambda x: F.gelu(x, approximate="tanh") + F.gelu(x), [(2, 3)]),
    "layer_norm": (lambda x, w, b: nn.layer_norm(x, 3, w, b), lambda x, w, b: F.layer_norm(x, (3,), w, b),
                   [(2, 3), (3,), (3,)]),
    "group_norm": (lambda x: nn.group_norm(x, 2, eps=1e-3), lambda x: F.group_norm(x, 2, eps=1e-3), [(2, 4, 3)]),
    "rms_norm": (lambda x, w: nn.rms_norm(x, w, -1), lambda x, w: F.rms_norm(x, (3,), w, 1e-5), [(2, 3), (3,)]),
    "conv2d": (lambda x, w, b: nn.conv2d(x, w, b, 2, 1), lambda x, w, b: F.conv2d(x, w, b, 2, 1),
               [(1, 2, 5, 5), (3, 2, 3, 3), (3,)]),
    "conv1d_transpose": (
        lambda x, w: nn.conv1d_transpose(x, w, None, 2, 1, 1, 1, 2),
        lambda x, w: F.conv_transpose1d(x, w, None, 2, 1, 1, 2, 1),
        [(1, 4, 5), (4, 1, 3)],
    ),
    "attention": (
        lambda q, k, v: nn.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda q, k, v: turned(F.scaled_dot_product_attention)(q, k, v, is_causal=True),
        [(2, 5, 3, 4)] * 3,
    ),
    "pad": (lambda x: nn.pad(x, [0, 0, 1, 2], "constant", 3.0), lambda x: F.pad(x, (1, 2), value=3.0), [(2, 3)]),
    "interpolate": (lambda x: nn.interpolate(x, scale_factor=2.0), lambda x: F.interpolate(x, scale_factor=2.0),
                    [(1, 2, 3, 3)]),
    "created": (
        lambda x: nn.where(nn.greater(x, nn.zeros([2, 3], "float64")), nn.ones([2, 3], "float64"),
                           nn.full([2, 3], 5.0, "float64")) * nn.linear(x, nn.ones((3, 3), "float64")),
        lambda x: torch.where(x > 0, 1.0, 5.0) * x.sum(1, keepdim=True),
        [(2, 3)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    ours, theirs, shapes = FUNCTIONS[name]
    assert_twins(Ours(ours), Theirs(theirs), *shapes)


def test_out_dtype():
    layer = nn.Linear(3, 2, dtype="float16", out_dtype="float32")
    assert (layer.weight.dtype, layer.bias.dtype) == ("float16", "float32")
    module, _ = layer.export_tvm({"forward": {"x": spec.Tensor([4, 3], "float16")}})
    assert module["forward"].ret_struct_info.dtype == "float32"


def test_modules_and_parameters():
    class Net(nn.Module):
        def __init__(self) -> None:
            self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
            self.named = nn.ModuleDict({"last": own.Linear(3, 1)})  # a layer of pullback.nn
            self.scale = nn.Parameter((3,), "float32")

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x) * self.scale
            return self.named["last"](x)

    net = Net()
    net.scale.data = np.full(3, 2.0, "float32")
    module, params = net.export_tvm({"forward": {"x": spec.Tensor([2, 3], "float32")}})
    assert [name for name, _ in params][:2] == ["scale", "layers.0.weight"]
    x = np.ones((2, 3), "float32")
    np.testing.assert_allclose(run(module, "forward", x, params=params).numpy(), net(x).numpy(), rtol=1e-5)
    assert relax.frontend.nn is nn
    with pytest.raises(ArgumentError, match="the shape of a parameter must be ints"):
        nn.Parameter(("n", 3))


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"forward": {"x": spec.Int()}}, UserError, "argument x is an integer, and functions take tensors only"),
        ({"forward": {"x": int}}, UserError, "argument x is an integer"),
        ({"forward": {"x": "float32"}}, ArgumentError, "the spec of argument x must be a spec.Tensor, got 'float32'"),
        ({"forward": {"y": spec.Tensor([1, 6], "float32")}}, ArgumentError, "forward has no argument 'y'"),
        ({"forward": {}}, ArgumentError, "forward has the argument 'x', which has no spec"),
        ({"froward": {}}, NameNotFound, "MLP has no method 'froward': did you mean forward"),
        ({"forward": spec.Tensor([1, 6], "float32")}, ArgumentError, "must be a mapping from its arguments"),
        ({"forward": {"$": {"param_mode": "packed"}}}, UserError, "param_mode must be 'plain', got 'packed'"),
        ({}, ArgumentError, "spec must be a mapping from methods"),
    ],
)
def test_specs_that_do_not_fit(given, error, text):
    with pytest.raises(error, match=text):
        MLP().export_tvm(given)


def test_effects_are_refused():
    class Printing(nn.Module):
        def forward(self, x: Any) -> Any:
            nn.print_(x)
            return x

    class Counting(nn.Module):
        def __init__(self) -> None:
            self.norm = own.BatchNorm1d(3)

        def forward(self, x: Any) -> Any:
            return self.norm(x)

    given = {"forward": {"x": spec.Tensor([2, 3], "float32")}}
    for make in (nn.IOEffect, lambda: nn.KVCache(10, [4, 8])):
        with pytest.raises(UserError, match="is an effect, and there are none"):
            make()
    with pytest.raises(UserError, match="print_ has effects"):
        Printing().export_tvm(given)
    with pytest.raises(UserError, match="debug=True asks for effects"):
        MLP().export_tvm(given, debug=True)
    with pytest.raises(UserError, match="has 3 buffers that are states"):
        Counting().export_tvm(given)
    with pytest.raises(ArgumentError, match="the shape of a spec must be a list"):
        spec.Tensor(3, "float32")
    assert str(spec.Tensor([1, "n"], "int32")) == "Tensor([1, n], 'int32')"
