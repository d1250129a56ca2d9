"""Losses beside PyTorch's: values and gradients of each reduction, as objects called in a forward and as functions."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import pullback
from pullback import nn
from pullback.ir.errors import UserError
from pullback.nn import functional as F
from pullback.relax import op
from tests.nn.twins import assert_twins

rng = np.random.default_rng(5)
SHAPE = (4, 3)
X, Y, Z = rng.standard_normal((3, *SHAPE))
P, Q = rng.uniform(0.05, 0.95, (2, *SHAPE))
LOGS = np.log(P / P.sum(1, keepdims=True))
SIGNS, CLASSES = rng.choice([-1.0, 1.0], SHAPE), np.array([0, 2, 1, 2])
LABELS = np.array([[0, 2, -1], [1, -1, 0], [2, 0, 1], [-1, 0, 1]])
WEIGHT = rng.uniform(0.5, 2.0, 3)
IMAGE, PLACES = rng.standard_normal((2, 3, 4)), rng.integers(0, 3, (2, 4))
TIMES, WORDS = np.log(rng.dirichlet(np.ones(5), (6, 3))), rng.integers(1, 5, (3, 2))

# the class, the function, what both are given, the predictions, what comes after them
CASES: list[tuple[str, str, dict[str, Any], tuple[Any, ...], tuple[Any, ...]]] = [
    ("L1Loss", "l1_loss", {}, (X,), (Y,)),
    ("MSELoss", "mse_loss", {}, (X,), (Y,)),
    ("SmoothL1Loss", "smooth_l1_loss", {}, (X,), (Y,)),
    ("SmoothL1Loss", "smooth_l1_loss", {"beta": 0.5}, (X,), (Y,)),
    ("HuberLoss", "huber_loss", {"delta": 0.5}, (X,), (Y,)),
    ("CrossEntropyLoss", "cross_entropy", {}, (X,), (CLASSES,)),
    ("CrossEntropyLoss", "cross_entropy", {"weight": WEIGHT, "label_smoothing": 0.1}, (X,), (CLASSES,)),
    ("CrossEntropyLoss", "cross_entropy", {"weight": WEIGHT, "ignore_index": 1}, (IMAGE,), (PLACES,)),
    ("CrossEntropyLoss", "cross_entropy", {"weight": WEIGHT, "label_smoothing": 0.1}, (X,), (Q,)),
    ("NLLLoss", "nll_loss", {}, (LOGS,), (CLASSES,)),
    ("NLLLoss", "nll_loss", {"weight": WEIGHT, "ignore_index": 0}, (LOGS,), (CLASSES,)),
    ("BCELoss", "binary_cross_entropy", {}, (P,), (Q,)),
    ("BCELoss", "binary_cross_entropy", {"weight": WEIGHT}, (P,), (Q,)),
    ("BCEWithLogitsLoss", "binary_cross_entropy_with_logits", {}, (X,), (Q,)),
    ("BCEWithLogitsLoss", "binary_cross_entropy_with_logits", {"weight": WEIGHT, "pos_weight": WEIGHT}, (X,), (Q,)),
    ("KLDivLoss", "kl_div", {}, (LOGS,), (Q,)),
    ("KLDivLoss", "kl_div", {"log_target": True}, (LOGS,), (Y,)),
    ("PoissonNLLLoss", "poisson_nll_loss", {"full": True}, (X,), (np.floor(P * 9),)),
    ("PoissonNLLLoss", "poisson_nll_loss", {"log_input": False, "eps": 1e-6}, (P,), (np.floor(P * 9),)),
    ("GaussianNLLLoss", "gaussian_nll_loss", {}, (X,), (Y, P)),
    ("GaussianNLLLoss", "gaussian_nll_loss", {"full": True, "eps": 0.2}, (X,), (Y, P)),
    ("HingeEmbeddingLoss", "hinge_embedding_loss", {"margin": 0.5}, (X,), (SIGNS,)),
    ("MarginRankingLoss", "margin_ranking_loss", {"margin": 0.5}, (X, Y), (SIGNS,)),
    ("CosineEmbeddingLoss", "cosine_embedding_loss", {"margin": 0.1}, (X, Y), (SIGNS[:, 0].copy(),)),
    ("TripletMarginLoss", "triplet_margin_loss", {"margin": 5.0, "swap": True}, (X, Y, Z), ()),
    ("TripletMarginLoss", "triplet_margin_loss", {"p": 3.0}, (X, Y, Z), ()),
    ("SoftMarginLoss", "soft_margin_loss", {}, (X,), (SIGNS,)),
    ("MultiMarginLoss", "multi_margin_loss", {"p": 2, "margin": 0.5, "weight": WEIGHT}, (X,), (CLASSES,)),
    ("MultiLabelMarginLoss", "multilabel_margin_loss", {}, (X,), (LABELS,)),
    ("MultiLabelSoftMarginLoss", "multilabel_soft_margin_loss", {"weight": WEIGHT}, (X,), (Q,)),
]


class Ours(nn.Module):
    """A loss of inputs and constants."""

    def __init__(self, loss: Any, constants: Any) -> None:
        self.loss, self.constants = loss, constants

    def forward(self, *inputs: Any) -> Any:
        return self.loss(*inputs, *self.constants)


class Theirs(torch.nn.Module):
    def __init__(self, loss: Any, constants: Any) -> None:
        super().__init__()
        self.hidden = [loss, *(torch.tensor(c) for c in constants)]  # no part of the state dict

    def forward(self, *inputs: Any) -> Any:
        return self.hidden[0](*inputs, *self.hidden[1:])


def in_torch(options: dict[str, Any]) -> dict[str, Any]:
    return {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{'-'.join(case[2])}")
def test_losses(case, reduction):
    kind, function, options, inputs, rest = case
    ours = partial(getattr(F, function), **options, reduction=reduction)
    if reduction == "mean":
        ours = getattr(nn, kind)(**options)
    theirs = getattr(torch.nn, kind)(**in_torch(options), reduction=reduction)
    target = "llvm" if kind == "CrossEntropyLoss" and reduction == "mean" else "debug"
    assert_twins(Ours(ours, rest), Theirs(theirs, rest), *inputs, target=target)


def test_positions():
    """Arguments that may come first do so in PyTorch's order."""
    for ours, theirs, inputs, rest in (
        (nn.CrossEntropyLoss(WEIGHT), torch.nn.CrossEntropyLoss(torch.tensor(WEIGHT)), X, CLASSES),
        (nn.NLLLoss(WEIGHT), torch.nn.NLLLoss(torch.tensor(WEIGHT)), LOGS, CLASSES),
        (nn.BCELoss(WEIGHT), torch.nn.BCELoss(torch.tensor(WEIGHT)), P, Q),
        (nn.BCEWithLogitsLoss(WEIGHT), torch.nn.BCEWithLogitsLoss(torch.tensor(WEIGHT)), X, Q),
        (nn.PoissonNLLLoss(False, True), torch.nn.PoissonNLLLoss(False, True), P, np.floor(P * 9)),
        (nn.HingeEmbeddingLoss(0.3), torch.nn.HingeEmbeddingLoss(0.3), X, SIGNS),
        (nn.MultiMarginLoss(2, 0.3, WEIGHT), torch.nn.MultiMarginLoss(2, 0.3, torch.tensor(WEIGHT)), X, CLASSES),
        (nn.MultiLabelSoftMarginLoss(WEIGHT), torch.nn.MultiLabelSoftMarginLoss(torch.tensor(WEIGHT)), X, Q),
    ):
        assert_twins(Ours(ours, [rest]), Theirs(theirs, [rest]), inputs, training=False)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ctc(reduction):
    """The gradient of scores below a log_softmax: PyTorch's for the logarithms themselves is another."""
    lengths = np.array([6, 4, 3]), np.array([2, 1, 0])

    def above(log_softmax: Any, loss: Any) -> Any:
        return lambda scores: loss(log_softmax(scores, -1), *rest)

    rest: Any = [WORDS, *lengths]
    ours = Ours(above(op.nn.log_softmax, nn.CTCLoss(0, reduction)), ())
    functional = Ours(above(op.nn.log_softmax, partial(F.ctc_loss, reduction=reduction)), ())
    rest_in_torch = [torch.tensor(v) for v in rest]
    loss = torch.nn.CTCLoss(0, reduction)
    theirs = Theirs(lambda scores: loss(scores.log_softmax(-1), *rest_in_torch), ())
    assert_twins(ours, theirs, TIMES)
    assert_twins(functional, theirs, TIMES)


def test_of_arrays():
    """Outside of a forward a loss of arrays, tensors or PyTorch's tensors is its value, in PyTorch's order."""
    for ours, theirs, values in (
        (nn.MSELoss(), torch.nn.MSELoss(), (X, Y)),
        (nn.CrossEntropyLoss(WEIGHT, reduction="none"), torch.nn.CrossEntropyLoss(torch.tensor(WEIGHT),
                                                                                 reduction="none"), (X, CLASSES)),
        (nn.GaussianNLLLoss(), torch.nn.GaussianNLLLoss(), (X, Y, P)),
    ):  # fmt: skip
        expected = theirs(*map(torch.tensor, values)).numpy()
        for given in (values, [pullback.tensor(v) for v in values], [torch.tensor(v) for v in values]):
            np.testing.assert_allclose(ours(*given).numpy(), expected, rtol=1e-12)
    with pytest.raises(UserError, match=r"MSELoss takes the types of \(predictions, targets\), got 1 of them"):
        nn.MSELoss()(X)
    with pytest.raises(UserError, match="predictions and targets must have the same shape"):
        nn.MSELoss()(X, Y[:2])


def test_every_loss_is_compared():
    compared = {case[0] for case in CASES} | {"CTCLoss", "TripletMarginWithDistanceLoss"}
    ours_alone = {"Loss", "CategoricalCrossEntropyLoss", "HingeLoss"}
    assert set(nn.loss.__all__) == compared | ours_alone
    functions = {case[1] for case in CASES} | {"ctc_loss", "triplet_margin_with_distance_loss"}
    assert set(F.loss.__all__) == functions


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("swap", [True, False])
def test_triplets_with_a_distance(reduction, swap):
    """Of the default distance, and of one of the user's."""
    options = {"margin": 1.5, "swap": swap, "reduction": reduction}
    kind, theirs = "TripletMarginWithDistanceLoss", torch.nn.TripletMarginWithDistanceLoss
    assert_twins(Ours(getattr(nn, kind)(**options), ()), Theirs(theirs(**options), ()), X, Y, Z)
    other = theirs(distance_function=lambda x, y: 1.0 - torch.nn.functional.cosine_similarity(x, y), **options)
    called = partial(
        F.triplet_margin_with_distance_loss, distance_function=lambda x, y: 1.0 - F.cosine_similarity(x, y), **options
    )
    assert_twins(Ours(called, ()), Theirs(other, ()), X, Y, Z)


def test_weights_are_checked():
    with pytest.raises(UserError, match="weight must be a number or an array of numbers"):
        nn.CrossEntropyLoss(["a", "b"])
    with pytest.raises(UserError, match=r"weights must be one factor for each class, Tensor\(\(3,\)"):
        Ours(nn.CrossEntropyLoss(np.ones(4)), [CLASSES]).export(X)
    with pytest.raises(UserError, match="size_average") as error:
        nn.MSELoss(size_average=True)
    assert "reduction" in str(error.value)
