"""Optimizers beside NumPy, written from the formulas of the papers: twenty steps in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.relax.training.optimizer import LAMB, LARS, Adafactor, Lion
from tests.relax.training.optimizers import run, values_and_gradients

STEPS = 20
norm = np.linalg.norm


def lion(p: Any, g: Any, s: Any, t: int, lr: float = 1e-4, betas: Any = (0.9, 0.99), weight_decay: float = 0) -> Any:
    (m,) = s or (0.0,)
    c = np.sign(betas[0] * m + (1 - betas[0]) * g)
    return p - lr * (c + weight_decay * p), (betas[1] * m + (1 - betas[1]) * g,)


def lars(
    p: Any, g: Any, s: Any, t: int, lr: float, momentum: float = 0.9, weight_decay: float = 0,
    trust_coefficient: float = 0.001, eps: float = 0, adaptive: bool = True,
) -> Any:  # fmt: skip
    (v,) = s or (0.0,)
    local = trust_coefficient * norm(p) / (norm(g) + weight_decay * norm(p) + eps) if adaptive else 1.0
    v = momentum * v + lr * local * (g + weight_decay * p)
    return p - v, (v,)


def lamb(
    p: Any, g: Any, s: Any, t: int, lr: float = 1e-3, betas: Any = (0.9, 0.999), eps: float = 1e-6,
    weight_decay: float = 0, adaptive: bool = True,
) -> Any:  # fmt: skip
    m, v = s or (0.0, 0.0)
    m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
    r = m / (1 - betas[0] ** t) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)
    update = r + weight_decay * p
    return p - lr * (norm(p) / norm(update) if adaptive else 1.0) * update, (m, v)


def adafactor(
    p: Any, g: Any, s: Any, t: int, lr: float = 1e-2, beta2_decay: float = -0.8, eps: Any = (None, 1e-3),
    d: float = 1.0, weight_decay: float = 0,
) -> Any:  # fmt: skip
    """Algorithms 4 and 5, with sums over rows and columns as the paper writes them: r c / sum(r), not means."""

    def rms(x: Any) -> float:
        return float(np.sqrt(np.mean(x * x)))

    tiny = np.finfo(float).eps if eps[0] is None else eps[0]
    beta2 = 1 - t**beta2_decay
    alpha = max(eps[1], rms(p)) * min(lr, 1 / np.sqrt(t))
    square = g * g
    if g.ndim > 1:
        old_r, old_c = s or (0.0, 0.0)
        r = beta2 * old_r + (1 - beta2) * square.sum(-1)
        c = beta2 * old_c + (1 - beta2) * square.sum(-2)
        s = r, c
        total = np.maximum(r.sum(-1), tiny * square.shape[-1] * square.shape[-2])[..., None, None]
        variance = r[..., :, None] * c[..., None, :] / total
    else:
        (variance,) = s = (beta2 * (s[0] if s else 0.0) + (1 - beta2) * square,)
    update = g / np.sqrt(np.maximum(variance, tiny**2))
    update = update / max(1.0, rms(update) / d)
    return p * (1 - lr * weight_decay) - alpha * update, s


CASES: list[tuple[Any, Any, dict[str, Any]]] = [
    (Lion, lion, {}),
    (Lion, lion, {"lr": 0.1, "betas": (0.7, 0.9), "weight_decay": 0.2}),
    (LARS, lars, {"lr": 10.0}),
    (LARS, lars, {"lr": 1.0, "momentum": 0.5, "weight_decay": 0.1, "trust_coefficient": 0.2, "eps": 0.3}),
    (LARS, lars, {"lr": 0.1, "weight_decay": 0.1, "adaptive": False}),
    (LAMB, lamb, {"lr": 0.1}),
    (LAMB, lamb, {"lr": 0.1, "betas": (0.7, 0.9), "eps": 1e-2, "weight_decay": 0.2}),
    (LAMB, lamb, {"lr": 0.1, "weight_decay": 0.2, "adaptive": False}),
    (Adafactor, adafactor, {}),
    (Adafactor, adafactor, {"lr": 0.5, "beta2_decay": -0.5, "eps": (1e-2, 0.1), "d": 1.5, "weight_decay": 0.1}),
]


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize(("kind", "formula", "options"), CASES)
def test_twenty_steps(kind: Any, formula: Any, options: dict[str, Any], maximize: bool) -> None:
    values, gradients = values_and_gradients(STEPS)
    kept: list[Any] = [()] * len(values)
    for t, (params, _) in enumerate(run(kind(**options, maximize=maximize), values, gradients), 1):
        for i, gradient in enumerate(gradients[t - 1]):
            signed = -gradient if maximize else gradient
            values[i], kept[i] = formula(values[i], signed, kept[i], t, **options)
            np.testing.assert_allclose(params[i], values[i], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [LARS(0.1, trust_coefficient=0.01), LAMB(0.1)])
def test_norms_of_zero_leave_out_the_ratio(kind: Any) -> None:
    zeros, ones = np.zeros((2, 3)), np.ones((2, 3))
    ((from_zero, untouched), _), *_ = run(kind, [zeros, np.ones(3)], [[ones, np.zeros(3)]])
    np.testing.assert_allclose(from_zero, -0.1 * ones, rtol=1e-5)  # lr · the gradient, or LAMB's direction, which is 1
    np.testing.assert_array_equal(untouched, np.ones(3))


def test_adafactor_keeps_a_row_and_a_column() -> None:
    values, gradients = values_and_gradients(1)
    ((_, states),) = run(Adafactor(), values, gradients)
    assert [s.shape for s in states] == [(), (3, 1), (2, 3, 1), (1, 4), (2, 1, 5), (4,), ()]


@pytest.mark.parametrize("kind", [Lion(), LARS(0.1), LAMB(), Adafactor()])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_backends_agree(kind: Any, dtype: str) -> None:
    values, gradients = values_and_gradients(3, dtype)
    results = [list(run(kind, values, gradients, target))[-1][0] for target in ("debug", "llvm")]
    for interpreted, native in zip(*results, strict=True):
        assert native.dtype == dtype and np.isfinite(native).all()
        np.testing.assert_allclose(native, interpreted, rtol=1e-5 if dtype == "float32" else 1e-2, atol=1e-6)
