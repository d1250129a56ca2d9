"""lr_find: on a copy, for any optimizer that has a learning rate."""

from __future__ import annotations

import copy
import math
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from pullback.ir import ArgumentError, UserError
from pullback.relax.training.lr_find import LRCurve
from pullback.relax.training.lr_schedule import CosineAnnealingLR
from pullback.relax.training.optimizer import (
    EMA,
    SGD,
    Adam,
    ClipByGlobalNorm,
    Optimizer,
    ParameterGroups,
    RunTime,
)
from tests.relax.training.models import assert_same, classes, params, trainer_of

X, Y = classes(50)


@pytest.mark.parametrize(
    "optimizer",
    [
        Adam(0.01),
        Adam(RunTime(0.01)),
        SGD(CosineAnnealingLR(0.1, 10)),
        EMA(ClipByGlobalNorm(Adam(1e-3), 1.0), 0.9),
        ParameterGroups(SGD(0.1), {"b*": {"lr": 0.5}, "w0": {"weight_decay": 0.1}}),
    ],
    ids=repr,
)
def test_the_trainer_stays_as_it_is(optimizer: Any) -> None:
    trainer, same = (trainer_of("llvm", optimizer=copy.deepcopy(optimizer)) for _ in range(2))
    found = trainer.lr_find(X, Y, start=1e-6, end=1e-2, steps=12)
    assert len(found.lrs) == len(found.losses) == 12
    np.testing.assert_allclose(found.lrs, np.geomspace(1e-6, 1e-2, 12))
    assert trainer.steps == trainer.epochs == len(trainer.history) == 0
    for t in (trainer, same):
        t.fit(X, Y, verbose=0)
    assert_same(params(trainer), params(same))


def test_each_step_has_its_rate() -> None:
    """As a trainer does whose rate is set by hand; batches are whole ones, in a random order."""
    found = trainer_of("llvm").lr_find(X, Y, start=0.01, end=0.1, steps=14)
    by_hand = trainer_of("llvm", optimizer=SGD(RunTime(0.05)))
    losses = []
    for k, lr in enumerate(np.geomspace(0.01, 0.1, 14)):
        if k % 6 == 0:
            order = by_hand._generator.permutation(50)
        rows = order[8 * (k % 6) : 8 * (k % 6) + 8]
        by_hand.set_hyperparameter("lr", float(lr))
        losses.append(by_hand.update(X[rows], Y[rows]).item())
    assert found.losses == pytest.approx(losses, rel=1e-6)


def test_a_group_of_its_own_rate_keeps_it() -> None:
    only = ParameterGroups(SGD(0.0), {"b2": {"lr": 0.5}})
    trainer = trainer_of(optimizer=only)
    before = trainer.lr_find(X, Y, start=1e-12, end=1e-11, steps=40, batch_size=50)
    assert before.losses[-1] < before.losses[0], "the bias learns"


def test_it_stops_where_the_loss_explodes() -> None:
    found = trainer_of("llvm").lr_find(X, Y, end=1e6)
    assert len(found.lrs) < 100 and found.lrs[-1] < 1e6 and all(map(math.isfinite, found.losses))


LRS = np.geomspace(1e-7, 1.0, 100)


def curve(function: Any, noise: float = 0.0) -> LRCurve:
    losses = [function(math.log10(lr)) + noise * math.sin(7 * k) for k, lr in enumerate(LRS)]
    return LRCurve(tuple(LRS.tolist()), tuple(losses))


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_the_suggestion_is_where_the_loss_falls_most_steeply(noise: float) -> None:
    found = curve(lambda lr: 2 / (1 + math.exp(4 * (lr + 3))) + (5 * (lr + 1.5) ** 3 if lr > -1.5 else 0), noise)
    assert found.suggestion is not None and 10**-3.3 < found.suggestion < 10**-2.7
    assert curve(lambda lr: lr).suggestion is None, "it rises"
    assert f"suggestion {found.suggestion:.2g}" in repr(found)
    assert "fell nowhere" in repr(curve(lambda lr: lr))


def test_it_is_drawn() -> None:
    found = curve(lambda lr: 2 / (1 + math.exp(4 * (lr + 3))))
    (axis,) = found.plot().axes
    assert axis.get_xscale() == "log" and len(axis.lines) == 3
    page = ElementTree.fromstring(f"<p>{found._repr_html_()}</p>")
    assert len(list(page.iter("polyline"))) == 1 and "suggestion" in "".join(page.itertext())


class Plain(Optimizer):
    """An optimizer without a rate."""

    def __init__(self) -> None:
        super().__init__("Plain")

    def update(self, step: Any, param: Any, gradient: Any) -> Any:  # type: ignore[override]
        from pullback.relax import op

        return (op.subtract(param, gradient),)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": 0.0}, "start must be a learning rate > 0, got 0.0"),
        ({"end": math.inf}, "end must be a learning rate > 0, got inf"),
        ({"start": 1.0, "end": 0.1}, "start must be less than end"),
        ({"steps": 3}, "steps must be an int ≥ 10, got 3"),
        ({"batch_size": 0}, "batch_size must be an int ≥ 1"),
    ],
)
def test_bad_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        trainer_of().lr_find(X, Y, **options)


def test_trainers_that_cannot() -> None:
    with pytest.raises(UserError, match="the optimizer Plain has no learning rate lr"):
        trainer_of(optimizer=Plain()).lr_find(X, Y)
    with pytest.raises(UserError, match=r"does not hold what it was made from\nhint: .*Adam\(RunTime\(1e-3\)\)"):
        copy.deepcopy(trainer_of()).lr_find(X, Y)
    assert len(copy.deepcopy(trainer_of(optimizer=SGD(RunTime(0.1)))).lr_find(X, Y, end=1e-3, steps=10).lrs) == 10
