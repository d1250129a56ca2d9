"""A layer beside PyTorch's: state dict, outputs, gradients, new states, the form for inference, initial values.

Everything in float64, so that what differs is the formula. In an ``…_against_torch.py`` file:

    @pytest.mark.parametrize(("ours", "theirs", "shapes"), [(nn.Linear(3, 4), torch.nn.Linear(3, 4), [(2, 3)]), …])
    def test_linear(ours, theirs, shapes):
        assert_twins(ours, theirs, *shapes)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import pullback
from pullback import nn
from pullback.relax import TensorStructInfo
from pullback.relax.convention import BACKBONE
from pullback.relax.transform import Gradient

TOLERANCE = 1e-9


class _Scalar(nn.Module):
    """Σ cotangent · output over all outputs of a module: what gradients are taken of."""

    def __init__(self, inner: nn.Module, cotangents: list[np.ndarray]) -> None:
        self.inner = inner
        for number, cotangent in enumerate(cotangents):
            self.register_buffer(f"c{number}", cotangent, persistent=False)

    def forward(self, *inputs: Any) -> Any:
        outputs = self.inner(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        terms = [(o * getattr(self, f"c{i}")).sum() for i, o in enumerate(outputs)]
        return (sum(terms[1:], terms[0]), *outputs)


def inputs_of(specs: Sequence[Any], seed: int = 0) -> list[np.ndarray]:
    """Normal float64 numbers of a shape, or the array that is given: indices, say."""
    source = np.random.default_rng(seed)
    return [source.normal(size=s) if isinstance(s, tuple) else np.asarray(s) for s in specs]


def assert_twins(
    ours: nn.Module, theirs: torch.nn.Module, *specs: Any, target: str = "debug", training: bool = True,
    tolerance: float = TOLERANCE, values: bool = True,
) -> None:  # fmt: skip
    """Compare a layer with PyTorch's: ``specs`` are shapes of inputs, or arrays.

    Names and shapes of the state dict, in both directions; outputs, gradients of inputs and parameters and new states
    in training (of what draws random numbers, ``training=False``), and outputs in the form for inference.
    ``values=False``: only the state dict and shapes of outputs.
    """
    theirs = theirs.double().train()
    ours.to("float64")
    load(ours, theirs)
    arrays = inputs_of(specs)
    if training:
        _assert_training(ours, theirs, arrays, target, tolerance)
    load(ours, theirs)
    with torch.no_grad():
        expected = _tuple(theirs.eval()(*map(torch.tensor, arrays)))
    found = _tuple(ours(*arrays))
    assert len(found) == len(expected)
    for mine, other in zip(found, expected, strict=True):
        assert mine.shape == tuple(other.shape)
        if values:
            np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=tolerance, atol=tolerance)


def load(ours: nn.Module, theirs: torch.nn.Module) -> None:
    """PyTorch's values, by name, and back again."""
    state = theirs.state_dict()
    mine = ours.state_dict()
    assert {n: tuple(v.shape) for n, v in state.items()} == {n: v.shape for n, v in mine.items()}
    ours.load_state_dict(state)
    theirs.load_state_dict({name: torch.tensor(v.numpy()) for name, v in ours.state_dict().items()})


def _assert_training(
    ours: nn.Module, theirs: torch.nn.Module, arrays: list[np.ndarray], target: str, tolerance: float
) -> None:
    tensors = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    outputs = _tuple(theirs(*tensors))
    cotangents = inputs_of([tuple(o.shape) for o in outputs], seed=1)
    sum((o * torch.tensor(c)).sum() for o, c in zip(outputs, cotangents, strict=True)).backward()
    module = _Scalar(ours, cotangents).export(*(TensorStructInfo(a.shape, a.dtype.name) for a in arrays))
    params = module[BACKBONE].params
    names = [p.name for p in params]
    floats = [i for i, a in enumerate(arrays) if a.dtype.kind == "f"]
    trained = [n for n, p in theirs.named_parameters() if p.requires_grad]
    wanted = [params[i] for i in floats] + [params[names.index(f"inner.{n}")] for n in trained]
    adjoint = Gradient(BACKBONE, wanted, 0)(module)
    kept = {f"inner.{n}": v for n, v in (*ours.named_parameters(), *ours.named_buffers())}
    values = [kept[n].numpy() for n in names[len(arrays) :]]
    results, gradients = pullback.compile(adjoint, target).function(f"{BACKBONE}_adjoint")(*arrays, *values)
    close = {"rtol": tolerance, "atol": tolerance}
    for mine, other in zip(results[1 : 1 + len(outputs)], outputs, strict=True):
        assert mine.shape == tuple(other.shape)
        np.testing.assert_allclose(mine.numpy(), other.detach().numpy(), **close)
    expected = [tensors[i].grad for i in floats] + [p.grad for n, p in theirs.named_parameters() if n in trained]
    for mine, other in zip(gradients, expected, strict=True):
        other = np.zeros(mine.shape) if other is None else other.numpy()
        np.testing.assert_allclose(mine.numpy(), other, **close)
    states = [n for n in names[len(arrays) :] if n.removeprefix("inner.") in dict(theirs.named_buffers())]
    for name, mine in zip(states, results[1 + len(outputs) :], strict=True):
        other = theirs.get_buffer(name.removeprefix("inner.")).numpy()
        np.testing.assert_allclose(mine.numpy(), other, **close)


def assert_same_start(make_ours: Callable[[], nn.Module], make_theirs: Callable[[], torch.nn.Module]) -> None:
    """Initial values follow PyTorch's distributions: mean, standard deviation, extremes of a few thousand draws."""
    draws: dict[str, list[np.ndarray]] = {}
    others: dict[str, list[np.ndarray]] = {}
    size = sum(p.numel() for p in make_theirs().parameters())
    for seed in range(max(4, -(-4000 // max(1, size)))):
        torch.manual_seed(seed)
        for name, value in make_ours().init_parameters(seed).state_dict().items():
            draws.setdefault(name, []).append(value.numpy().ravel())
        for name, tensor in make_theirs().state_dict().items():
            others.setdefault(name, []).append(tensor.numpy().ravel())
    assert draws.keys() == others.keys()
    for name in draws:
        mine, other = np.concatenate(draws[name]).astype(float), np.concatenate(others[name]).astype(float)
        spread = other.std()
        if spread == 0:
            np.testing.assert_array_equal(np.unique(mine), np.unique(other), err_msg=name)
            continue
        slack = 5 * spread / np.sqrt(mine.size)
        assert abs(mine.mean() - other.mean()) < 2 * slack, name
        assert abs(mine.std() - spread) < 2 * slack, name
        assert np.abs(mine).max() < np.abs(other).max() * 1.3 + 1e-12, name


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)
