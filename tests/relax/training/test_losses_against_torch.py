"""Every loss beside PyTorch's: value, and gradients of the backbone's outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from pullback.ir import IRModule
from pullback.relax.interpreter import evaluate, value_info
from pullback.relax.training import loss as losses
from pullback.relax.transform.gradient import Gradient

rng = np.random.default_rng(5)
SHAPE = (4, 3)
X, Y, Z = rng.standard_normal((3, *SHAPE))
P, Q = rng.uniform(0.05, 0.95, (2, *SHAPE))
LOGS = np.log(P / P.sum(1, keepdims=True))
SIGNS, CLASSES = rng.choice([-1.0, 1.0], SHAPE), np.array([0, 2, 1, 2])
LABELS = np.array([[0, 2, -1], [1, -1, 0], [2, 0, 1], [-1, 0, 1]])
WEIGHT = rng.uniform(0.5, 2.0, 3)
TORCH_WEIGHT = torch.tensor(WEIGHT)

# ours, theirs, the backbone's outputs, the targets, and the weights that we take as a target
CASES: dict[str, tuple[type, dict[str, Any], dict[str, Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "L1Loss": (losses.L1Loss, {}, {}, (X,), (Y,)),
    "MSELoss": (losses.MSELoss, {}, {}, (X,), (Y,)),
    "SmoothL1Loss": (losses.SmoothL1Loss, {"beta": 0.5}, {"beta": 0.5}, (X,), (Y,)),
    "HuberLoss": (losses.HuberLoss, {"delta": 0.5}, {"delta": 0.5}, (X,), (Y,)),
    "BCELoss": (losses.BCELoss, {}, {}, (P,), (Q,)),
    "BCELoss weighted": (losses.BCELoss, {"weight": WEIGHT}, {"weight": TORCH_WEIGHT}, (P,), (Q,)),
    "BCEWithLogitsLoss": (losses.BCEWithLogitsLoss, {}, {}, (X,), (Q,)),
    "BCEWithLogitsLoss weighted": (
        losses.BCEWithLogitsLoss,
        {"weight": 2.0, "pos_weight": WEIGHT},
        {"weight": torch.tensor(2.0), "pos_weight": TORCH_WEIGHT},
        (X,),
        (Q,),
    ),
    "BCEWithLogitsLoss positive": (
        losses.BCEWithLogitsLoss,
        {"pos_weight": WEIGHT},
        {"pos_weight": TORCH_WEIGHT},
        (X,),
        (Q,),
    ),
    "CrossEntropyLoss": (losses.CrossEntropyLoss, {}, {}, (X,), (CLASSES,)),
    "CrossEntropyLoss smooth": (
        losses.CrossEntropyLoss,
        {"label_smoothing": 0.1, "ignore_index": 1},
        {"label_smoothing": 0.1, "ignore_index": 1},
        (X,),
        (CLASSES,),
    ),
    "CrossEntropyLoss smooth probabilities": (
        losses.CrossEntropyLoss,
        {"label_smoothing": 0.1},
        {"label_smoothing": 0.1},
        (X,),
        (Q,),
    ),
    "NLLLoss": (losses.NLLLoss, {}, {}, (LOGS,), (CLASSES,)),
    "KLDivLoss": (losses.KLDivLoss, {}, {}, (LOGS,), (Q,)),
    "KLDivLoss of logarithms": (losses.KLDivLoss, {"log_target": True}, {"log_target": True}, (LOGS,), (Y,)),
    "MultiMarginLoss": (losses.MultiMarginLoss, {"p": 2, "margin": 0.5}, {"p": 2, "margin": 0.5}, (X,), (CLASSES,)),
    "MultiLabelMarginLoss": (losses.MultiLabelMarginLoss, {}, {}, (X,), (LABELS,)),
    "MultiLabelSoftMarginLoss": (losses.MultiLabelSoftMarginLoss, {}, {}, (X,), (Q,)),
    "SoftMarginLoss": (losses.SoftMarginLoss, {}, {}, (X,), (SIGNS,)),
    "HingeEmbeddingLoss": (losses.HingeEmbeddingLoss, {"margin": 0.5}, {"margin": 0.5}, (X,), (SIGNS,)),
    "MarginRankingLoss": (losses.MarginRankingLoss, {"margin": 0.5}, {"margin": 0.5}, (X, Y), (SIGNS,)),
    "CosineEmbeddingLoss": (losses.CosineEmbeddingLoss, {}, {}, (X, Y), (SIGNS[:, 0].copy(),)),
    "TripletMarginLoss": (losses.TripletMarginLoss, {"margin": 5.0}, {"margin": 5.0}, (X, Y, Z), ()),
    "PoissonNLLLoss": (losses.PoissonNLLLoss, {"full": True}, {"full": True}, (X,), (np.floor(P * 9),)),
    "GaussianNLLLoss": (losses.GaussianNLLLoss, {"full": True}, {"full": True}, (X, P), (Y,)),
}


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", CASES)
def test_as_pytorch(name: str, reduction: str) -> None:
    kind, ours, theirs, outputs, targets = CASES[name]
    function = kind(reduction, **ours)(*map(value_info, (*outputs, *targets)))
    assert len(function.body.blocks) == 1
    params = list(function.params[: len(outputs)])
    module = Gradient("loss", params)(IRModule({"loss": function}))
    value, gradients = evaluate(module, "loss_adjoint", [*outputs, *targets])

    tensors = [torch.tensor(x, requires_grad=True) for x in outputs]
    rest = [torch.tensor(t) for t in targets]
    arguments = [tensors[0], *rest, *tensors[1:]] if kind is losses.GaussianNLLLoss else [*tensors, *rest]
    expected = getattr(torch.nn, kind.__name__)(reduction=reduction, **theirs)(*arguments)
    expected.backward()
    np.testing.assert_allclose(value, expected.detach().numpy(), rtol=1e-10)
    for got, tensor in zip(gradients, tensors, strict=True):
        np.testing.assert_allclose(got, tensor.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_every_loss_is_compared() -> None:
    # PyTorch has no such classes
    own = {losses.Loss, losses.FunctionLoss, losses.CategoricalCrossEntropyLoss, losses.HingeLoss}
    every = {v for v in vars(losses).values() if isinstance(v, type) and issubclass(v, losses.Loss)}
    assert every - own == {case[0] for case in CASES.values()} | {losses.CTCLoss}


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_ctc_as_pytorch(reduction: str) -> None:
    """PyTorch gives the gradient of the scores below a log_softmax: exp(p) more than that of p by itself."""
    logs, labels = np.log(rng.dirichlet(np.ones(5), (6, 3))), rng.integers(0, 4, (3, 2))
    lengths = np.array([6, 4, 3]), np.array([2, 1, 0])
    function = losses.CTCLoss(reduction, blank=4)(*map(value_info, (logs, labels, *lengths)))
    module = Gradient("loss", [function.params[0]])(IRModule({"loss": function}))
    value, (gradient,) = evaluate(module, "loss_adjoint", [logs, labels, *lengths])
    tensor = torch.tensor(logs, requires_grad=True)
    expected = torch.nn.CTCLoss(4, reduction)(tensor, *map(torch.tensor, (labels, *lengths)))
    expected.backward()
    np.testing.assert_allclose(value, expected.detach().numpy(), rtol=1e-10)
    share = 1 / (3 * np.maximum(lengths[1], 1)) if reduction == "mean" else np.ones(3)
    inside = (np.arange(6)[:, None] < lengths[0])[:, :, None]
    own = tensor.grad.numpy() - np.where(inside, np.exp(logs) * share[:, None], 0)
    np.testing.assert_allclose(gradient, own, rtol=1e-9, atol=1e-12)
