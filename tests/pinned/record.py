"""Record the pinned trainings from PyTorch: `python -m tests.pinned.record` rewrites torch_losses.npz.

Only needed when a case is added; the file is committed, and the tests read it without PyTorch.
"""

from __future__ import annotations

import itertools
import json
from typing import Any, NamedTuple

import numpy as np
import torch

from tests.pinned import FILE, PARAMETERS, STEPS

SIZES = (20, 16, 12, 5)
BATCH = 8
IGNORED_CLASS = 2
RATE = 0.01 / 64


class LossCase(NamedTuple):
    name: str
    loss: str
    options: dict[str, Any]
    target: str
    weighted: bool = False


class OptimizerCase(NamedTuple):
    name: str
    optimizer: str
    options: dict[str, Any]


CROSS_ENTROPY = "CrossEntropyLoss"
LOSSES = [
    case
    for reduction in ("sum", "mean")
    for case in (
        LossCase(f"cross-entropy-{reduction}", CROSS_ENTROPY, {"reduction": reduction}, "labels"),
        LossCase(f"cross-entropy-{reduction}-one-hot", CROSS_ENTROPY, {"reduction": reduction}, "one_hot"),
        LossCase(f"cross-entropy-{reduction}-probabilities", CROSS_ENTROPY, {"reduction": reduction}, "probabilities"),
        LossCase(f"cross-entropy-{reduction}-weights", CROSS_ENTROPY, {"reduction": reduction}, "labels", True),
        LossCase(
            f"cross-entropy-{reduction}-ignored-class",
            CROSS_ENTROPY,
            {"reduction": reduction, "ignore_index": IGNORED_CLASS},
            "labels",
        ),
        LossCase(
            f"cross-entropy-{reduction}-ignored-rows", CROSS_ENTROPY, {"reduction": reduction}, "labels_with_gaps"
        ),
        LossCase(
            f"cross-entropy-{reduction}-weights-ignored-class",
            CROSS_ENTROPY,
            {"reduction": reduction, "ignore_index": IGNORED_CLASS},
            "labels",
            True,
        ),
        LossCase(f"mse-{reduction}", "MSELoss", {"reduction": reduction}, "values"),
        LossCase(f"l1-{reduction}", "L1Loss", {"reduction": reduction}, "values"),
    )
]
OPTIMIZERS = [
    OptimizerCase("sgd", "SGD", {"learning_rate": RATE, "weight_decay": 0.01}),
    OptimizerCase("sgd-plain", "SGD", {"learning_rate": 0.05}),
    OptimizerCase("momentum", "MomentumSGD", {"learning_rate": RATE, "momentum": 0.9, "weight_decay": 0.01}),
    OptimizerCase("momentum-nesterov", "MomentumSGD", {"learning_rate": RATE, "momentum": 0.9, "nesterov": True}),
    OptimizerCase("momentum-dampening", "MomentumSGD", {"learning_rate": RATE, "momentum": 0.9, "dampening": 0.1}),
    OptimizerCase("adam", "Adam", {"learning_rate": 1e-3}),
    OptimizerCase("adam-decay", "Adam", {"learning_rate": 1e-3, "weight_decay": 0.01}),
    OptimizerCase("adam-options", "Adam", {"learning_rate": 1e-2, "betas": [0.8, 0.95], "eps": 1e-6}),
]
# Every loss with the first optimizer and with Adam, every optimizer with these losses too.
EVERY_OPTIMIZER_WITH = ("cross-entropy-sum", "cross-entropy-mean", "mse-mean")
EVERY_LOSS_WITH = ("sgd", "adam")


def main() -> None:
    torch.set_num_threads(1)
    arrays = data()
    cases = []
    for loss in LOSSES:
        for optimizer in OPTIMIZERS:
            if loss.name in EVERY_OPTIMIZER_WITH or optimizer.name in EVERY_LOSS_WITH:
                for dtype in ("float32", "float64"):
                    cases.append(record(arrays, loss, optimizer, dtype))
    arrays["cases"] = np.array(json.dumps(cases))
    np.savez_compressed(FILE, **arrays)
    print(f"{FILE}: {len(cases)} cases, {FILE.stat().st_size / 1024:.0f} KiB, from PyTorch {torch.__version__}")


def data() -> dict[str, np.ndarray]:
    """Inputs, targets of every form, class weights, and initial parameters; values that float32 holds exactly."""
    generator = np.random.default_rng(20240229)
    classes = SIZES[-1]

    def normal(*shape: int) -> np.ndarray:
        return generator.standard_normal(shape).astype(np.float32).astype(np.float64)

    labels = np.array([0, 3, 2, 4, 1, 2, 0, 4])
    gaps = labels.copy()
    gaps[[1, 5]] = -100  # PyTorch's default ignore_index
    probabilities = np.exp(normal(BATCH, classes))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    arrays = {
        "x": normal(BATCH, SIZES[0]),
        "labels": labels,
        "labels_with_gaps": gaps,
        "one_hot": np.eye(classes)[labels],
        "probabilities": probabilities.astype(np.float32).astype(np.float64),
        "values": normal(BATCH, classes),
        "class_weights": np.array([0.5, 1.0, 1.5, 2.0, 0.25]),
    }
    shapes = [shape for n, m in itertools.pairwise(SIZES) for shape in ((n, m), (m,))]
    for name, shape in zip(PARAMETERS, shapes, strict=True):
        arrays[name] = 0.25 * normal(*shape)
    return arrays


def record(arrays: dict[str, np.ndarray], loss: LossCase, optimizer: OptimizerCase, dtype: str) -> dict[str, Any]:
    """Train one case, put its losses and final parameters into `arrays`, and return its facts."""
    name = f"{loss.name}/{optimizer.name}/{dtype}"
    parameters = [torch.from_numpy(arrays[p].astype(dtype)).requires_grad_() for p in PARAMETERS]
    x = torch.from_numpy(arrays["x"].astype(dtype))
    target = torch.from_numpy(arrays[loss.target])
    if target.is_floating_point():
        target = target.to(x.dtype)
    weights = {"weight": torch.from_numpy(arrays["class_weights"].astype(dtype))} if loss.weighted else {}
    loss_function = getattr(torch.nn, loss.loss)(**loss.options, **weights)
    update = torch_optimizer(optimizer, parameters)

    losses = []
    for _ in range(STEPS):
        update.zero_grad()
        value = loss_function(logits(x, parameters), target)
        value.backward()
        update.step()
        losses.append(value.item())
    arrays[f"{name}/losses"] = np.array(losses, dtype)
    if dtype == "float64":
        arrays[f"{name}/final"] = np.concatenate([final.detach().numpy().ravel() for final in parameters])
    return {
        "name": name, "dtype": dtype, "loss": loss.loss, "loss_options": loss.options, "target": loss.target,
        "weighted": loss.weighted, "optimizer": optimizer.optimizer, "optimizer_options": optimizer.options,
    }  # fmt: skip


def logits(x: torch.Tensor, parameters: list[torch.Tensor]) -> torch.Tensor:
    w0, b0, w1, b1, w2, b2 = parameters
    hidden = torch.relu(x @ w0 + b0)
    hidden = torch.relu(hidden @ w1 + b1)
    return hidden @ w2 + b2


def torch_optimizer(case: OptimizerCase, parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    """PyTorch's optimizer for pullback's class name and options."""
    options = dict(case.options)
    rate = options.pop("learning_rate")
    kind = torch.optim.Adam if case.optimizer == "Adam" else torch.optim.SGD
    return kind(parameters, lr=rate, **options)


if __name__ == "__main__":
    main()
