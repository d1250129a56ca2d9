"""Losses beside PyTorch's: each reduction, weights, and the values where derivatives jump."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from pullback.relax.op.namespace import ops
from tests.relax.op.against_torch import Sides, compare

functional = torch.nn.functional
rng = np.random.default_rng(3)
SHAPE = (4, 3)
X, Y = rng.standard_normal(SHAPE), rng.standard_normal(SHAPE)
GRID, ZEROS = np.array([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0]), np.zeros(7)
INSIDE, PROBABILITIES = rng.uniform(0.05, 0.95, SHAPE), rng.uniform(0.05, 0.95, SHAPE)
COUNTS, VARIANCES = np.floor(rng.uniform(0, 5, SHAPE)), rng.uniform(0.1, 2.0, SHAPE)
SIGNS = rng.choice([-1.0, 1.0], SHAPE)
W, PW = rng.uniform(0.5, 2.0, (4, 1)), rng.uniform(0.5, 3.0, 3)

CASES: dict[str, Sides] = {}


def add(label: str, ours: Callable[..., Any], theirs: Callable[..., Any], *arrays: np.ndarray, **attrs: Any) -> None:
    """A case for each reduction, with the attributes on both sides."""
    for reduction in ("mean", "sum", "none", *(["batchmean"] if "kl_div" in label else [])):
        sides = (partial(f, reduction=reduction, **attrs) for f in (ours, theirs))
        CASES[f"{label} {attrs or ''} {reduction}"] = (*sides, arrays)


def both(name: str, *arrays: np.ndarray, label: str = "", **attrs: Any) -> None:
    add(f"{name} {label}", getattr(ops.nn, name), getattr(functional, name), *arrays, **attrs)


both("l1_loss", X, Y)
both("l1_loss", GRID, ZEROS, label="kinks")
both("mse_loss", X, Y)
for _attrs in ({}, {"beta": 0.5}, {"beta": 0.0}):
    both("smooth_l1_loss", X, Y, **_attrs)
    both("smooth_l1_loss", GRID, ZEROS, label="kinks", **_attrs)
for _attrs in ({}, {"delta": 0.5}):
    both("huber_loss", X, Y, **_attrs)
    both("huber_loss", GRID, ZEROS, label="kinks", **_attrs)

both("binary_cross_entropy", INSIDE, PROBABILITIES)
add(
    "binary_cross_entropy weighted",
    partial(ops.nn.binary_cross_entropy, weight=W),
    partial(functional.binary_cross_entropy, weight=torch.tensor(W)),
    INSIDE,
    PROBABILITIES,
)
_HARD = np.array([0.0, 1.0, 0.0, 1.0, 0.5]), torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0], dtype=torch.float64)
add(
    "binary_cross_entropy of certain ones",
    lambda p, reduction: ops.nn.binary_cross_entropy(p, _HARD[1].numpy(), reduction=reduction),
    lambda p, reduction: functional.binary_cross_entropy(p, _HARD[1], reduction=reduction),
    _HARD[0],
)
both("binary_cross_entropy_with_logits", X * 20, PROBABILITIES)
for _label, _weights in {
    "weight": {"weight": W},
    "pos": {"pos_weight": PW},
    "both": {"weight": W, "pos_weight": PW},
}.items():
    add(
        f"binary_cross_entropy_with_logits {_label}",
        partial(ops.nn.binary_cross_entropy_with_logits, **_weights),
        partial(functional.binary_cross_entropy_with_logits, **{k: torch.tensor(v) for k, v in _weights.items()}),
        X,
        PROBABILITIES,
    )
both("kl_div", X, PROBABILITIES)
both("kl_div", X, Y, log_target=True)
both("poisson_nll_loss", X, COUNTS)
both("poisson_nll_loss", X, COUNTS + 0.5, full=True)  # of counts of 0 the derivative for targets is NaN there
both("poisson_nll_loss", INSIDE, COUNTS, log_input=False)
both("gaussian_nll_loss", X, Y, VARIANCES)
both("gaussian_nll_loss", X, Y, VARIANCES, full=True)
both("gaussian_nll_loss", X, Y, VARIANCES[:, :1].copy(), label="of rows")
both("gaussian_nll_loss", X, Y, VARIANCES * 0.1, label="below eps", eps=0.1)
add(
    "soft_margin_loss",
    partial(ops.nn.soft_margin_loss, targets=SIGNS),
    partial(functional.soft_margin_loss, target=torch.tensor(SIGNS)),
    X * 5,
)
both("hinge_embedding_loss", X, SIGNS)
both("hinge_embedding_loss", GRID, -np.ones(7), label="kinks", margin=0.5)

both("margin_ranking_loss", X, Y, SIGNS)
both("margin_ranking_loss", GRID, ZEROS, np.ones(7), label="kinks", margin=0.5)
for _target in (1, -1):
    _targets = np.full(4, _target)
    for _margin in (0.0, 0.3, -0.5):
        both("cosine_embedding_loss", X, Y, _targets, label=f"{_target}", margin=_margin)
TRIPLET = tuple(rng.standard_normal((3, 4, 5)))
for _attrs in ({}, {"margin": 9.0}, {"margin": 9.0, "p": 1.0}, {"margin": 9.0, "p": 3.0, "swap": True}):
    both("triplet_margin_loss", *TRIPLET, **_attrs)
CLASSES, CW = np.array([0, 2, 1, 2]), rng.uniform(0.5, 2.0, 3)
for _attrs in ({}, {"p": 2, "margin": 0.5}):
    both("multi_margin_loss", X, CLASSES, **_attrs)
both("multi_margin_loss", np.array([1.0, 0.0, 2.0]), np.array(0), label="kinks")
add(
    "multi_margin_loss weighted",
    partial(ops.nn.multi_margin_loss, weights=CW),
    partial(functional.multi_margin_loss, weight=torch.tensor(CW)),
    X,
    CLASSES,
)
MANY = np.array([[0, 2, -1], [1, -1, 0], [2, 0, 1], [-1, 0, 1]])
both("multilabel_margin_loss", X, MANY)
both("multilabel_margin_loss", X[0], np.array([1, 1, -1]), label="of one row")
both("multilabel_margin_loss", np.array([[1.0, 0.0, 2.0]]), np.array([[0, -1, -1]]), label="kinks")
both("multilabel_soft_margin_loss", X, PROBABILITIES)
add(
    "multilabel_soft_margin_loss weighted",
    partial(ops.nn.multilabel_soft_margin_loss, weights=CW),
    partial(functional.multilabel_soft_margin_loss, weight=torch.tensor(CW)),
    X,
    PROBABILITIES,
)
for _smoothing in (0.0, 0.2, 1.0):
    for _weighted in (False, True):
        _ours = partial(ops.nn.cross_entropy, label_smoothing=_smoothing, weights=CW if _weighted else None)
        _theirs = partial(
            functional.cross_entropy,
            label_smoothing=_smoothing,
            weight=torch.tensor(CW) if _weighted else None,
        )
        _label = f"cross_entropy {_smoothing} {'weighted' if _weighted else ''}"
        add(_label, _ours, _theirs, X, CLASSES)
        add(f"{_label} ignored", _ours, _theirs, X, CLASSES, ignore_index=2)
        add(f"{_label} images", _ours, _theirs, rng.standard_normal((2, 3, 4, 5)), rng.integers(0, 3, (2, 4, 5)))
        add(f"{_label} probabilities", _ours, _theirs, X, PROBABILITIES)
        add(f"{_label} image probabilities", _ours, _theirs, *rng.uniform(0, 1, (2, 2, 3, 4)))
        add(f"{_label} one example", _ours, _theirs, X[0], np.array(1))
for _blank, _lengths, _counts in ((0, [9, 9, 9], [4, 4, 4]), (4, [9, 6, 5], [4, 1, 0]), (2, [9, 3, 1], [3, 3, 2])):
    _labels = rng.integers(0, 4, (3, 4))
    _labels += _labels >= _blank
    for _zero in (False, True) if min(_lengths) > 4 else (True,):  # PyTorch: NaN where the loss is infinite
        add(
            f"ctc_loss {_blank} {_zero}",
            lambda x, *rest, blank, **attrs: ops.nn.ctc_loss(ops.nn.log_softmax(x), *rest, blank, **attrs),
            lambda x, *rest, blank, **attrs: functional.ctc_loss(x.log_softmax(-1), *rest, blank, **attrs),
            rng.standard_normal((9, 3, 5)),
            _labels,
            np.array(_lengths),
            np.array(_counts),
            blank=_blank,
            zero_infinity=_zero,
        )
CASES["cosine_similarity"] = (ops.nn.cosine_similarity, functional.cosine_similarity, (X, Y))
CASES["cosine_similarity axis"] = (
    lambda x, y: ops.nn.cosine_similarity(x, y, -2, 1e-3),
    lambda x, y: functional.cosine_similarity(x, y, -2, 1e-3),
    (TRIPLET[0][None], rng.standard_normal((2, 4, 5))),
)


@pytest.mark.parametrize("name", CASES)
def test_as_pytorch(name: str) -> None:
    compare(CASES[name], rtol=1e-8 if "certain" in name else 1e-9)  # PyTorch's least p·(1 - p) is that of float32
