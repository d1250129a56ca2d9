"""Mixed precision beside PyTorch: bfloat16 as near to float32 as under torch.autocast, and GradScaler's loss scales."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pullback.relax.training.optimizer import Adam, DynamicLossScale
from tests.relax.training.models import classes, params, trainer_of
from tests.relax.training.optimizers import run

X, Y = classes(8)
functional = torch.nn.functional


def torch_losses(values: list[np.ndarray], steps: int, precision: torch.dtype | None) -> np.ndarray:
    """Of the perceptron of models.py with these parameters, by Adam."""
    weights = [torch.tensor(v, requires_grad=True) for v in values]
    optimizer = torch.optim.Adam(weights, lr=0.01)
    losses = []
    for _ in range(steps):
        with torch.autocast("cpu", precision, enabled=precision is not None):
            h = torch.tensor(X)
            for k in range(0, len(weights), 2):
                h = h @ weights[k] + weights[k + 1]
                h = torch.relu(h) if k < len(weights) - 2 else h
        loss = functional.cross_entropy(h.float(), torch.tensor(Y))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


def test_bfloat16_is_as_near_to_float32_as_under_autocast() -> None:
    single, mixed = (trainer_of("llvm", optimizer=Adam(0.01), precision=p) for p in (None, "bfloat16"))
    values = params(single)
    ours = np.array([[float(t.update(X, Y)) for t in (single, mixed)] for _ in range(40)])
    theirs = [torch_losses(values, 40, p) for p in (None, torch.bfloat16)]
    np.testing.assert_allclose(ours[:, 0], theirs[0], rtol=1e-4)
    assert np.abs(ours[:, 1] - ours[:, 0]).max() < 2 * np.abs(theirs[1] - theirs[0]).max()


@pytest.mark.parametrize("options", [{}, {"growth_factor": 3.0, "backoff_factor": 0.25}])
def test_the_scale_is_gradscalers(options: dict[str, float]) -> None:
    generator = np.random.default_rng(2)
    gradients = [generator.standard_normal(3).astype("float32") for _ in range(40)]
    for bad in (5, 6, 13, 30):
        gradients[bad][bad % 3] = (np.inf, np.nan, -np.inf)[bad % 3]
    start = np.zeros(3, "float32")
    made = DynamicLossScale(Adam(0.1), 1024.0, growth_interval=4, **options)
    ours = [(p[0], float(states[-3])) for p, states in run(made, [start], [[g] for g in gradients])]
    weight = torch.tensor(start.copy(), requires_grad=True)
    optimizer = torch.optim.Adam([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=4, **options)
    scaler.scale(torch.zeros(()))  # makes the scale a tensor
    for gradient, (value, scale) in zip(gradients, ours, strict=True):
        weight.grad = torch.tensor(gradient) * scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == scale
        np.testing.assert_allclose(value, weight.detach().numpy(), rtol=1e-5, atol=1e-6)
