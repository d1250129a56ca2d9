"""Random networks trained beside PyTorch's, with random optimizers and losses, on batches of changing sizes.

Compared are losses, parameters and buffers after steps and after ``fit``, and predictions in the form for inference: of
the trainer, of the module, and of what is made of them: a module that took PyTorch's values, a copy, a pickle, a
checkpoint. Any other seeds may be tried with ``check(seed, "debug")``.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pullback
from pullback import nn, optim
from pullback.nn import functional as F
from tests.nn.random_networks import Draws, build

SMALL = {"eps": 1e-3}  # so gradients that are 0 but for rounding do not become steps of full size
OPTIMIZERS: list[tuple[Any, Any, dict[str, Any]]] = [
    (optim.SGD, torch.optim.SGD, {"lr": 0.05}),
    (optim.SGD, torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    (optim.SGD, torch.optim.SGD, {"lr": 0.05, "momentum": 0.5, "dampening": 0.2, "weight_decay": 0.1}),
    (optim.Adam, torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.01, **SMALL}),
    (optim.Adam, torch.optim.Adam, {"lr": 0.01, "amsgrad": True, **SMALL}),
    (optim.AdamW, torch.optim.AdamW, {"lr": 0.01, **SMALL}),
    (optim.NAdam, torch.optim.NAdam, {"lr": 0.01, **SMALL}),
    (optim.RAdam, torch.optim.RAdam, {"lr": 0.01, **SMALL}),
    (optim.Adamax, torch.optim.Adamax, {"lr": 0.01, **SMALL}),
    (optim.RMSprop, torch.optim.RMSprop, {"lr": 0.01, "centered": True, "momentum": 0.5, **SMALL}),
    (optim.Adagrad, torch.optim.Adagrad, {"lr": 0.05, **SMALL}),
    (optim.Adadelta, torch.optim.Adadelta, {"lr": 0.5, **SMALL}),
]
SEES_THE_BATCH = "track_running_stats': False, 'eps"  # norms whose predictions depend on the other rows


@pytest.fixture(autouse=True)
def _default_dtype() -> Iterator[None]:
    """NAdam's product of μ is of PyTorch's default dtype."""
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("seed", range(6))
def test_random_networks(seed: int, tmp_path: Path) -> None:
    check(seed, "debug", folder=tmp_path)


@pytest.mark.parametrize("seed", [104, 113])
def test_random_networks_natively(seed: int) -> None:
    check(seed, "llvm")


def test_random_networks_in_single_precision() -> None:
    check(125, "llvm", "float32")


def _loss(outputs: Any, targets: Any, functions: Any) -> Any:
    """A cross entropy of the first output, and the mean square of the second one where there are two."""
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    first = functions.cross_entropy(outputs[0], targets)
    return first if len(outputs) == 1 else first + 0.1 * (outputs[1] ** 2).mean()


def _of_one(prediction: Any, target: Any) -> Any:
    return _loss(prediction, target, F)


def _of_two(first: Any, second: Any, target: Any) -> Any:
    return _loss((first, second), target, F)


def check(seed: int, target: str, dtype: str = "float64", steps: int = 4, folder: Path | None = None) -> None:
    """Train the network that a seed draws, and compare."""
    draws = Draws(seed)
    description, makers = draws.network()
    torch.manual_seed(seed)
    torch.set_default_dtype(getattr(torch, dtype))
    pair = _Pair(draws, description, target, dtype, makers)
    pair.assert_same_state("after loading", exactly=True)
    for _ in range(steps):
        pair.step(*pair.batch(draws.pick(2, 3, 5, 8)))
    pair.assert_same_state("after steps")
    pair.fit(*pair.batch(7), size=5)
    pair.assert_same_state("after fit")
    pair.assert_same_predictions()
    pair.assert_copies_go_on_alike(folder)


class _Pair:
    """A network of either library, and how they are trained."""

    def __init__(self, draws: Draws, description: Any, target: str, dtype: str, makers: list[Any]) -> None:
        self.dtype, self.makers, self.tolerance = dtype, makers, 1e-6 if dtype == "float64" else 2e-3
        self.source, self.description = np.random.default_rng(0), description
        heads = description[1][2:]
        self.classes = heads[0][1][1]
        self.ours, self.theirs = self.build(nn), build(description, torch.nn).to(getattr(torch, dtype)).train()
        kind, oracle, options = draws.pick(*OPTIMIZERS)
        self.clip = draws.pick(None, None, 0.5)
        optimizer = kind(**options) if self.clip is None else optim.ClipByValue(kind(**options), self.clip)
        loss = _of_two if len(heads) == 2 else draws.pick(_of_one, "cross_entropy")
        example, labels = self.batch(3)
        self.trainer = pullback.trainer(
            self.ours, loss, optimizer, example=tuple(example), targets=labels, target=target
        )  # fmt: skip
        self.trainer.load_state_dict(self.theirs.state_dict())
        self.reference = oracle([p for p in self.theirs.parameters() if p.requires_grad], **options)

    def build(self, library: Any) -> Any:
        return build(self.description, library).to(self.dtype)

    def batch(self, rows: int) -> tuple[list[np.ndarray], np.ndarray]:
        inputs = [make(rows, self.source) for make in self.makers]
        inputs = [x.astype(self.dtype) if x.dtype.kind == "f" else x for x in inputs]
        return inputs, self.source.integers(0, self.classes, rows)

    def their_step(self, inputs: list[np.ndarray], labels: np.ndarray) -> float:
        self.reference.zero_grad()
        found = _loss(self.theirs(*map(torch.tensor, inputs)), torch.tensor(labels), torch.nn.functional)
        found.backward()
        if self.clip is not None:
            torch.nn.utils.clip_grad_value_(self.theirs.parameters(), self.clip)
        self.reference.step()
        return float(found.item())

    def near(self, value: float) -> Any:
        return pytest.approx(value, rel=self.tolerance, abs=self.tolerance)

    def step(self, inputs: list[np.ndarray], labels: np.ndarray) -> None:
        assert self.trainer.update(inputs, labels).item() == self.near(self.their_step(inputs, labels))

    def fit(self, inputs: list[np.ndarray], labels: np.ndarray, size: int) -> None:
        """An epoch whose last batch is smaller."""
        parts = [slice(i, i + size) for i in range(0, len(labels), size)]
        losses = [self.their_step([x[s] for x in inputs], labels[s]) * len(labels[s]) for s in parts]
        history = self.trainer.fit(inputs, labels, batch_size=size, shuffle=False, verbose=False)
        assert history["loss"][-1] == self.near(sum(losses) / len(labels))

    def assert_same_state(self, when: str, exactly: bool = False) -> None:
        expected = self.theirs.state_dict()
        for state in (self.trainer.state_dict(), self.ours.state_dict()):
            assert state.keys() == expected.keys()
            for name, value in expected.items():
                self.assert_close(state[name], value, f"{when}: {name}", 0 if exactly else self.tolerance)

    def assert_same_predictions(self) -> None:
        inputs, _ = self.batch(4)
        with torch.no_grad():
            expected = self.theirs.eval()(*map(torch.tensor, inputs))
        self.assert_close(self.trainer.predict(*inputs), expected, "predict")
        if SEES_THE_BATCH not in str(self.description):
            self.assert_close(self.trainer.predict(*inputs, batch_size=3), expected, "predict in batches")
        self.assert_close(self.ours(*inputs), expected, "the module")
        fresh = self.build(nn)
        fresh.load_state_dict(self.theirs.state_dict())
        self.assert_close(fresh(*inputs), expected, "a module that took PyTorch's values")
        self.theirs.load_state_dict({n: torch.tensor(v.numpy()) for n, v in self.trainer.state_dict().items()})

    def assert_copies_go_on_alike(self, folder: Path | None) -> None:
        others = [copy.deepcopy(self.trainer), pickle.loads(pickle.dumps(self.trainer))]
        if folder is not None:
            self.trainer.save(folder / "saved.safetensors")
            others.append(copy.deepcopy(self.trainer))
            others[-1].update(*self.batch(3))
            others[-1].load(folder / "saved.safetensors")
        inputs, labels = self.batch(4)
        expected, state = self.trainer.update(inputs, labels).item(), self.trainer.state_dict()
        for other in others:
            assert other.update(inputs, labels).item() == expected
            for name, value in other.state_dict().items():
                np.testing.assert_array_equal(value.numpy(), state[name].numpy(), err_msg=name)

    def assert_close(self, mine: Any, other: Any, what: str, tolerance: float | None = None) -> None:
        tolerance = self.tolerance if tolerance is None else tolerance
        mine, other = (v if isinstance(v, tuple) else (v,) for v in (mine, other))
        assert len(mine) == len(other), what
        for a, b in zip(mine, other, strict=True):
            assert a.shape == tuple(b.shape), what
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=tolerance, atol=tolerance, err_msg=what)
