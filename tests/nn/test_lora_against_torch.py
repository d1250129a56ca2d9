"""Fine-tuning beside PyTorch: low-rank updates and adapters written out there, ten losses of a training equal.

The oracle runs PyTorch's module with the weights W + s·B·A (``torch.func.functional_call``), or with hooks behind
layers, and lets autograd find what A and B get.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import pullback
from pullback import nn, optim
from pullback.nn import functional as own
from pullback.relax import TensorStructInfo
from pullback.script import ir as I
from pullback.script import relax as R

STEPS, RATE, TOLERANCE = 10, 0.05, 1e-9
RNG = np.random.default_rng(3)
IDS = RNG.integers(0, 7, (4, 5))
BAGS = np.array([[1, 2, 3], [4, 0, 0], [5, 6, 1], [2, 2, 0]])


class Attention(nn.Module):
    def __init__(self) -> None:
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.attention(x, x, x)[0]


class TorchAttention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x)[0]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        self.lstm = nn.LSTM(6, 4, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.lstm(x)[0]


class TorchRecurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(6, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0]


class Tied(nn.Module):
    """A table that is looked up, and multiplied with at the end."""

    def __init__(self) -> None:
        self.table, self.head = nn.Embedding(7, 6), nn.Linear(6, 7, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: Any) -> Any:
        return self.head(own.tanh(self.table(ids)))


class TorchTied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = torch.nn.Embedding(7, 6), torch.nn.Linear(6, 7, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.table(ids)))


class Products(nn.Module):
    """A matrix from either side, as it is and transposed, in several ways."""

    def __init__(self) -> None:
        self.w = nn.Parameter(np.zeros((6, 6)))

    def forward(self, x: Any) -> Any:
        w = self.w
        transposed = w.T
        y = own.tanh(x @ w) @ transposed + own.linear(x, transposed) + own.linear(x, w)
        return own.tanh(w @ y) + transposed @ y


class TorchProducts(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(6, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w = self.w
        y = torch.tanh(x @ w) @ w.T + F.linear(x, w.T) + F.linear(x, w)
        return torch.tanh(w @ y) + w.T @ y


class Both(nn.Module):
    """A matrix in a product, and in what needs the sum."""

    def __init__(self) -> None:
        self.w = nn.Parameter(np.zeros((6, 6)))

    def forward(self, x: Any) -> Any:
        return own.tanh(x @ self.w) * self.w + self.w[1]


class TorchBoth(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(6, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ self.w) * self.w + self.w[1]


def twin(name: str, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    return getattr(nn, name)(*args, **kwargs), getattr(torch.nn, name)(*args, **kwargs)


CASES: dict[str, Any] = {
    "linear": (lambda: twin("Linear", 6, 5), (4, 6), ["*weight"], {}),
    "linear-3d": (lambda: twin("Linear", 6, 5, bias=False), (2, 3, 6), ["weight"], {}),
    "linear-fan-in-fan-out": (lambda: twin("Linear", 6, 5), (4, 6), ["weight"], {"fan_in_fan_out": True}),
    "linear-rslora": (lambda: twin("Linear", 6, 5), (4, 6), ["weight"], {"rslora": True}),
    "conv1d": (lambda: twin("Conv1d", 3, 5, 3, padding=1), (2, 3, 9), ["weight"], {}),
    "conv2d": (lambda: twin("Conv2d", 3, 5, 3, stride=2, padding=1, dilation=2), (2, 3, 9, 8), ["weight"], {}),
    "conv2d-transposed": (lambda: twin("Conv2d", 3, 5, 3), (2, 3, 6, 6), ["weight"], {"fan_in_fan_out": True}),
    "conv2d-groups": (lambda: twin("Conv2d", 4, 6, 3, groups=2), (2, 4, 6, 6), ["weight"], {}),
    "conv3d": (lambda: twin("Conv3d", 2, 3, 2), (2, 2, 4, 4, 4), ["weight"], {}),
    "conv-transpose": (lambda: twin("ConvTranspose2d", 3, 5, 3, stride=2), (2, 3, 4, 4), ["weight"], {}),
    "embedding": (lambda: twin("Embedding", 7, 6, padding_idx=0), IDS, ["weight"], {}),
    "embedding-transposed": (lambda: twin("Embedding", 7, 6), IDS, ["weight"], {"fan_in_fan_out": True}),
    "embedding-bag": (lambda: twin("EmbeddingBag", 7, 6, mode="sum"), BAGS, ["weight"], {}),
    "tied": (lambda: (Tied(), TorchTied()), IDS, ["head"], {}),
    "attention": (lambda: (Attention(), TorchAttention()), (2, 3, 6), ["in_proj_weight", "out_proj"], {}),
    "lstm": (lambda: (Recurrent(), TorchRecurrent()), (2, 3, 6), ["*weight*"], {}),
    "products": (lambda: (Products(), TorchProducts()), (6, 6), ["w"], {}),
    "products-transposed": (lambda: (Products(), TorchProducts()), (6, 6), ["w"], {"fan_in_fan_out": True}),
    "sum-and-product": (lambda: (Both(), TorchBoth()), (6, 6), ["w"], {}),
}


def data_of(spec: Any) -> np.ndarray:
    return np.random.default_rng(5).normal(size=spec) if isinstance(spec, tuple) else spec


def example_of(x: np.ndarray) -> Any:
    return TensorStructInfo(x.shape, x.dtype.name)


def begin(ours: nn.Module, theirs: torch.nn.Module) -> None:
    """The same values in both, float64."""
    theirs.double()
    ours.to("float64")
    with torch.no_grad():
        for p in theirs.parameters():
            p.copy_(torch.from_numpy(RNG.normal(size=tuple(p.shape)) * 0.4))
    ours.load_state_dict(theirs.state_dict())


def randomized(ours: nn.Module) -> dict[str, torch.Tensor]:
    """The parameters that were added, by name: with values of which none is zero."""
    added = {n: p for n, p in ours.named_parameters() if "lora" in n or "adapter" in n}
    for p in added.values():
        p.data = RNG.normal(size=p.shape) * 0.3
    return {n: torch.from_numpy(p.numpy()).requires_grad_() for n, p in added.items()}


def updated(module: torch.nn.Module, added: dict[str, torch.Tensor], scale: float, transposed: bool) -> Any:
    """The weights W + s·B·A of a module."""
    weights = {n: p.detach() for n, p in module.named_parameters()}
    for name, p in list(weights.items()):
        layer = name.removesuffix(".weight") if "." in name else {"weight": ""}.get(name, name)
        a = added.get(f"{layer}.lora_A" if layer else "lora_A")
        if a is not None:
            product = added[f"{layer}.lora_B" if layer else "lora_B"] @ a
            product = product.T if transposed else product
            weights[name] = p + scale * product.reshape(p.shape)
    return weights


@pytest.mark.parametrize("name", CASES)
def test_ten_losses_and_what_is_trained(name: str) -> None:
    make, spec, targets, options = CASES[name]
    ours, theirs = make()
    begin(ours, theirs)
    lora = nn.LoRA(2, 3.0, targets, **options)
    x = data_of(spec)
    lora(ours)
    added = randomized(ours)
    shape = theirs(torch.from_numpy(x)).shape
    y = np.random.default_rng(6).normal(size=tuple(shape))
    given = [TensorStructInfo(y.shape, "float64")]
    trainer = pullback.trainer(ours, "mse", optim.SGD(lr=RATE), example=example_of(x), targets=given, target="debug")
    assert set(trainer.trained) == set(added)
    losses, expected = [], []
    for _ in range(STEPS):
        losses.append(trainer.update(x, y).item())
        weights = updated(
            theirs, added, 3.0 / (np.sqrt(2) if options.get("rslora") else 2), "fan_in_fan_out" in options
        )
        result = torch.func.functional_call(theirs, weights, (torch.from_numpy(x),), tie_weights=True)
        loss = F.mse_loss(result, torch.from_numpy(y))
        loss.backward()
        expected.append(loss.item())
        with torch.no_grad():
            for p in added.values():
                p -= RATE * p.grad
                p.grad = None
    np.testing.assert_allclose(losses, expected, rtol=TOLERANCE)
    for key, p in added.items():
        np.testing.assert_allclose(
            trainer.value_of(key).numpy(), p.detach().numpy(), rtol=1e-7, atol=1e-10, err_msg=key
        )
    merged = trainer.merged_state_dict()
    theirs.load_state_dict({n: torch.from_numpy(t.numpy()) for n, t in merged.items()})
    found = np.asarray(trainer.predict(x))
    np.testing.assert_allclose(found, theirs(torch.from_numpy(x)).detach().numpy(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(np.asarray(trainer.without_updates().predict(x)), found, rtol=1e-10, atol=1e-12)


@I.ir_module
class Script:
    I.module_attrs({"param_num": 3, "state_num": 1})

    @R.function
    def backbone(
        x: R.Tensor(("n", 6), "float64"),
        w1: R.Tensor((6, 5), "float64"),
        b1: R.Tensor((5,), "float64"),
        w2: R.Tensor((5, 3), "float64"),
        count: R.Tensor((), "float64"),
    ):
        with R.dataflow():
            h = R.tanh(R.matmul(x, w1) + b1)
            y = R.matmul(h, w2)
            new = count + R.const(1.0, "float64")
            R.output(y, new)
        return y, new


@I.ir_module
class Declared:
    @R.function
    def backbone(
        w1: R.Param((6, 5), "float64"),
        b1: R.Param((5,), "float64"),
        count: R.State((), "float64"),
        x: R.Tensor(("n", 6), "float64"),
        w2: R.Param((5, 3), "float64"),
    ):
        with R.dataflow():
            h = R.tanh(R.matmul(x, w1) + b1)
            y = R.matmul(h, w2)
            new = count + R.const(1.0, "float64")
            R.output(y, new)
        return y, new


@pytest.mark.parametrize("model", [Script, Declared], ids=["counted", "declared"])
@pytest.mark.parametrize("transposed", [False, True])
def test_scripts_train_as_written_out(model: Any, transposed: bool) -> None:
    lora = nn.LoRA(2, 4, ["w1", "w2"], fan_in_fan_out=transposed, modules_to_save="b1")
    trainer = pullback.trainer(model, "mse", optim.SGD(lr=RATE), seed=4, adapt=lora, target="debug")
    assert set(trainer.trained) == {"w1.lora_A", "w1.lora_B", "w2.lora_A", "w2.lora_B", "b1"}
    for name in ("w1", "w2"):
        a, b = (np.asarray(trainer.params[f"{name}.lora_{k}"]) for k in "AB")
        assert (b == 0).all() and 0 < np.abs(a).max() <= 1 / np.sqrt(a.shape[1])
    p = {name: torch.from_numpy(value.numpy()).requires_grad_() for name, value in trainer.params.items()}
    x, y = RNG.normal(size=(8, 6)), RNG.normal(size=(8, 3))

    def weight(name: str) -> torch.Tensor:
        product = p[f"{name}.lora_B"] @ p[f"{name}.lora_A"]
        return p[name].detach() + 2 * (product.T if transposed else product)

    for _ in range(STEPS):
        h = torch.tanh(torch.from_numpy(x) @ weight("w1") + p["b1"])
        loss = F.mse_loss(h @ weight("w2"), torch.from_numpy(y))
        loss.backward()
        np.testing.assert_allclose(trainer.update(x, y).item(), loss.item(), rtol=TOLERANCE)
        with torch.no_grad():
            for name in trainer.trained:
                p[name] -= RATE * p[name].grad
                p[name].grad = None
    found = trainer.merged_state_dict()
    assert set(found) == {"w1", "b1", "w2", "count"} and found["count"].item() == STEPS
    np.testing.assert_allclose(found["w1"].numpy(), weight("w1").detach().numpy(), rtol=1e-9)
    plain = trainer.without_updates()
    np.testing.assert_allclose(np.asarray(plain.predict(x)[0]), np.asarray(trainer.predict(x)[0]), rtol=1e-10)


# ---- adapters behind layers

ACTIVATIONS = {"gelu": F.gelu, "relu": F.relu, "silu": F.silu, "tanh": torch.tanh}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_adapters_train_as_hooks_do(activation: str) -> None:
    layers = [("Linear", 6, 5), ("Tanh",), ("Linear", 5, 4), ("LayerNorm", 4)]
    pairs = [twin(name, *args) for name, *args in layers]
    ours = nn.Sequential(nn.Sequential(*(o for o, _ in pairs[:3])), pairs[3][0])
    theirs = torch.nn.Sequential(torch.nn.Sequential(*(t for _, t in pairs[:3])), pairs[3][1])
    begin(ours, theirs)
    x, y = RNG.normal(size=(8, 6)), RNG.normal(size=(8, 4))
    nn.Adapter(3, ["0", "0.0"], activation)(ours, example_of(x))
    added = randomized(ours)
    for name in ("0", "0.0"):

        def hook(module: Any, inputs: Any, h: torch.Tensor, name: str = name) -> torch.Tensor:
            down, d, up, u = (
                added[f"{name}.adapter_{k}"] for k in ("down.weight", "down.bias", "up.weight", "up.bias")
            )
            return h + F.linear(ACTIVATIONS[activation](F.linear(h, down, d)), up, u)

        theirs.get_submodule(name).register_forward_hook(hook)
    trainer = pullback.trainer(ours, "mse", optim.SGD(lr=RATE), example=example_of(x), target="debug")
    assert set(trainer.trained) == set(added)
    for _ in range(STEPS):
        loss = F.mse_loss(theirs(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        np.testing.assert_allclose(trainer.update(x, y).item(), loss.item(), rtol=TOLERANCE)
        with torch.no_grad():
            for p in added.values():
                p -= RATE * p.grad
                p.grad = None


def test_an_adapter_along_channels() -> None:
    ours, theirs = twin("Conv2d", 3, 4, 3)
    begin(ours, theirs)
    net = nn.Sequential(ours)
    x = RNG.normal(size=(2, 3, 6, 6))
    nn.Adapter(2, "0", "relu", axis=1)(net, example_of(x))
    added = randomized(net)
    h = theirs(torch.from_numpy(x))
    down, d, up, u = (added[f"0.adapter_{k}"] for k in ("down.weight", "down.bias", "up.weight", "up.bias"))
    inner = F.relu(F.conv2d(h, down[:, :, None, None], d))
    expected = h + F.conv2d(inner, up[:, :, None, None], u)
    np.testing.assert_allclose(np.asarray(net(x)), expected.detach().numpy(), rtol=1e-10, atol=1e-12)
