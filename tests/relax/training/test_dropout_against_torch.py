"""Training with dropout beside PyTorch, which is given our masks: the same losses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

import pullback
from pullback.ir import IRModule
from pullback.relax.op.random.draw import STEPS
from pullback.relax.training.loss import CrossEntropyLoss
from pullback.relax.training.optimizer import Adam, MomentumSGD
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.te.random import bits_array

functional = torch.nn.functional
SEED, P, Q = 12, 0.25, 0.5
rng = np.random.default_rng(0)
LABELS = rng.integers(0, 5, 6)


def mask(step: int, site: int, shape: Sequence[int], p: float) -> torch.Tensor:
    """What is kept of the elements of a site in a step, scaled."""
    drawn = bits_array(np.array([SEED, step + site * STEPS], np.uint64), shape)
    return torch.tensor((drawn < (1 - p) * 2**32) / (1 - p))


@I.ir_module
class Perceptron:
    I.module_attrs({"param_num": 3, "state_num": 0})

    @R.function
    def backbone(
        x: R.Tensor((6, 30), "float64"), w: R.Tensor((30, 40), "float64"), b: R.Tensor((40,), "float64"),
        v: R.Tensor((40, 5), "float64"),
    ):  # fmt: skip
        with R.dataflow():
            d = R.dropout(x, P)
            h = R.nn.relu(R.matmul(d, w) + b)
            e = R.nn.dropout(h, Q)
            out = R.matmul(e[0], v)
            R.output(out)
        return out


def perceptron(step: int, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    h = torch.relu((x * mask(step, 0, x.shape, P)) @ w + b)
    return (h * mask(step, 1, h.shape, Q)) @ v


@I.ir_module
class Images:
    I.module_attrs({"param_num": 4, "state_num": 0})

    @R.function
    def backbone(
        x: R.Tensor((6, 3, 8, 8), "float64"), w: R.Tensor((16, 3, 3, 3), "float64"),
        v: R.Tensor((16, 16, 3, 3), "float64"), scale: R.Tensor((16,), "float64"), u: R.Tensor((16, 5), "float64"),
    ):  # fmt: skip
        with R.dataflow():
            h = R.nn.gelu(R.nn.conv2d(x, w, padding=1))
            d = R.dropout(h, P)
            y = d + R.nn.conv2d(d, v, padding=1)
            n = R.nn.layer_norm(R.dropout(R.mean(y, (2, 3)), Q), scale, scale)
            out = R.matmul(n, u)
            R.output(out)
        return out


def images(step: int, x: torch.Tensor, w: torch.Tensor, v: torch.Tensor, scale: torch.Tensor, u: torch.Tensor):
    h = functional.gelu(functional.conv2d(x, w, padding=1))
    d = h * mask(step, 0, h.shape, P)
    y = (d + functional.conv2d(d, v, padding=1)).mean((2, 3))
    return functional.layer_norm(y * mask(step, 1, y.shape, Q), (16,), scale, scale) @ u


@pytest.mark.parametrize("target", ["llvm", "debug"])
@pytest.mark.parametrize("model, theirs", [(Perceptron, perceptron), (Images, images)], ids=["perceptron", "images"])
def test_losses(model: IRModule, theirs, target):
    inputs = rng.standard_normal(model["backbone"].params[0].struct_info.shape)
    trainer = pullback.trainer(model, CrossEntropyLoss(), MomentumSGD(0.05, 0.9), seed=SEED, target=target)
    tensors = [torch.tensor(t.numpy(), requires_grad=True) for t in trainer.params.values()]
    optimizer = torch.optim.SGD(tensors, 0.05, 0.9)
    for step in range(8):
        optimizer.zero_grad()
        loss = functional.cross_entropy(theirs(step, torch.tensor(inputs), *tensors), torch.tensor(LABELS))
        loss.backward()
        optimizer.step()
        found = float(trainer.update(inputs, LABELS))
        assert abs(found - loss.item()) <= 1e-10 * (1 + abs(found)), f"step {step}: {found}, PyTorch has {loss.item()}"
    for ours, tensor in zip(trainer.params.values(), tensors, strict=True):
        np.testing.assert_allclose(ours.numpy(), tensor.detach().numpy(), rtol=1e-8, atol=1e-10)


def test_pytorch_drops_in_the_same_way():
    """Its dropout is this product with its own mask; evaluation drops nothing."""
    x = torch.randn(1000, dtype=torch.float64)
    y = functional.dropout(x, P)
    assert torch.allclose(y[y != 0], x[y != 0] / (1 - P))
    trainer = pullback.trainer(Perceptron, CrossEntropyLoss(), Adam(1e-3), seed=1)
    tensors = [torch.tensor(t.numpy()) for t in trainer.params.values()]
    inputs = rng.standard_normal((6, 30))
    expected = torch.relu(torch.tensor(inputs) @ tensors[0] + tensors[1]) @ tensors[2]
    np.testing.assert_allclose(trainer.predict(inputs).numpy(), expected.numpy(), rtol=1e-10)
