"""Losses, metrics and values of a training on several ranks are those of one process on the same batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback
from pullback import nn, optim
from pullback.distributed import Distribution
from tests.relax.training import models
from tests.relax.training.several import (
    STAGES,
    T,
    X,
    Y,
    arrays,
    assert_alike,
    assert_same_on_ranks,
    mlp,
    on_ranks,
    state_of,
    trainer_of,
)

WEIGHTS = np.random.default_rng(3).random(len(X))
WEIGHTS[:9] = 0.0  # the whole part of some ranks
COUNTED = np.where(np.arange(len(Y)) % 3 == 0, Y, 1)


def fitted(
    distributed: Any, optimizer: Any = None, net: Any = mlp, loss: Any = "cross_entropy", x: Any = X, y: Any = Y,
    **options: Any,
) -> Any:  # fmt: skip
    """The history of a training, and what the trainer keeps after it."""
    made = {name: options.pop(name) for name in ("precision", "trainable") if name in options}
    trainer = trainer_of(distributed, optimizer, net, loss, x if isinstance(x, np.ndarray) else X, **made)
    options = {"epochs": 2, "batch_size": 8, "verbose": 0} | options
    if not isinstance(x, np.ndarray):
        options["batch_size"] = None
    history = trainer.fit(x, y, **options)
    names = history.keys()
    return {name: history[name] for name in names}, state_of(trainer)


def bn_net() -> nn.Module:
    """Without a bias whose gradient is 0 but for rounding."""
    return nn.Sequential(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def dropout_net(place: int) -> nn.Module:
    layers = [nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)]
    return nn.Sequential(*layers[:place], nn.Dropout(0.4), *layers[place:])


TRAININGS: dict[str, dict[str, Any]] = {
    "adam": {"validation": (X[:13], Y[:13]), "metrics": ["f1", "auc"]},
    "adamw": {"optimizer": lambda: optim.AdamW(1e-2)},
    "momentum": {"optimizer": lambda: optim.SGD(1e-1, momentum=0.9)},
    "clipping": {"optimizer": lambda: optim.ClipByGlobalNorm(optim.Adam(1e-2), 0.5)},
    "accumulation": {"optimizer": lambda: optim.Accumulate(optim.Adam(1e-2), 2)},
    "averages": {"optimizer": lambda: optim.EMA(optim.Adam(1e-2), 0.9)},
    "run-time value": {"optimizer": lambda: optim.Adam(optim.RunTime(1e-2))},
    "some are trained": {"trainable": ["2.*"]},
    "weights": {"sample_weight": WEIGHTS},
    "classes": {"class_weight": "balanced"},
    "ignored targets": {"loss": lambda: nn.CrossEntropyLoss(ignore_index=1), "y": COUNTED},
    "sum": {"loss": lambda: nn.MSELoss(reduction="sum"), "y": T},
    "numbers": {"loss": "mse", "y": T, "validation": (X, T), "metrics": ["r2", "mae", "max_error", "rmse"]},
    "metrics of steps": {"train_metrics": True, "metrics": ["auc", "f1", "perplexity"]},
    "checked steps": {"detect_nan": True},
    "a part for validation": {"validation_split": 0.3, "metrics": ["f1"]},
    "whole batches": {"drop_last": True},
    "some steps": {"steps_per_epoch": 2},
    "no shuffling": {"shuffle": False},
    "one batch": {"batch_size": 22},
    "batches": {"x": [(X[k : k + 8], Y[k : k + 8]) for k in range(0, 22, 8)], "y": None,
                "validation": [(X[k : k + 5], Y[k : k + 5]) for k in range(0, 22, 5)], "metrics": ["auc"]},
    "batch norm": {"net": bn_net, "validation": (X, Y)},
    "batch norm, measured": {"net": bn_net, "train_metrics": True, "metrics": ["perplexity"]},
    "dropout": {"net": lambda: dropout_net(1)},
    "dropout, measured": {"net": lambda: dropout_net(1), "train_metrics": True, "metrics": ["perplexity"]},
    "dropout first": {"net": lambda: dropout_net(0)},
    "dropout last": {"net": lambda: dropout_net(3)},
}  # fmt: skip


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", TRAININGS)
def test_two_ranks_train_as_one_process(name: str, stage: str) -> None:
    assert_same_on_ranks(2, lambda d: fitted(d, **TRAININGS[name]), stage, rtol=1e-4)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(
    "name", ["adam", "clipping", "accumulation", "weights", "ignored targets", "batches", "dropout"]
)
def test_four_ranks_train_as_one_process(name: str, stage: str) -> None:
    assert_same_on_ranks(4, lambda d: fitted(d, **TRAININGS[name]), stage, rtol=1e-4)


@pytest.mark.parametrize("stage", STAGES)
def test_scaled_losses_in_half_precision(stage: str) -> None:
    """Products are rounded to float16 in parts that differ: the scale and what it skips are the same."""

    def train(distributed: Any) -> Any:
        trainer = trainer_of(distributed, lambda: optim.SGD(1e-2), precision="float16")
        losses = trainer.fit(X, Y, batch_size=8, epochs=2, verbose=0)["loss"]
        return losses, trainer.loss_scale, trainer.steps

    assert_same_on_ranks(2, train, stage, rtol=1e-3)


@pytest.mark.parametrize("rows", [1, 2, 3, 5])
@pytest.mark.parametrize("stage", ["data", "zero3"])
def test_batches_of_any_number_of_rows(rows: int, stage: str) -> None:
    """Fewer rows than ranks are computed by all; they count once."""

    def train(distributed: Any) -> Any:
        trainer = trainer_of(distributed, lambda: optim.Accumulate(optim.Adam(1e-2), 2))
        losses = [trainer.update(X[:rows], Y[:rows]).item(), trainer.update(X[:8], Y[:8]).item()]
        history = trainer.fit(X[: 8 + rows], Y[: 8 + rows], batch_size=8, verbose=0, validation=(X[:rows], Y[:rows]))
        return losses, history["loss"], history["val_loss"], state_of(trainer)

    assert_same_on_ranks(4, train, stage, rtol=1e-4)


def test_a_training_of_a_module_with_its_batch_written_out() -> None:
    x, y = models.classes(30)

    def train(distributed: Any) -> Any:
        trainer = pullback.training.make_trainer(
            models.mlp(8), nn.CrossEntropyLoss(), optim.Adam(1e-2), target="debug", distributed=distributed
        )
        losses = trainer.fit(x, y, epochs=2, verbose=0)["loss"]
        return losses, trainer.update(x[:8], y[:8]).item(), trainer.evaluate(x, y).loss, state_of(trainer)

    assert_same_on_ranks(2, train, "zero2", rtol=1e-4)


@pytest.mark.parametrize("stage", [0, 1, 3])
@pytest.mark.parametrize("make", [None, models.mlp], ids=["any batch", "batch of eight"])
def test_micro_batches_of_one_rank_are_ranks_bit_for_bit(stage: int, make: Callable[[int], Any] | None) -> None:
    x, y = models.classes(24)

    def train(micro_batches: int) -> Any:
        chosen = Distribution(stage, deterministic=True, micro_batches=micro_batches)
        if make is None:
            net = nn.Sequential(nn.Linear(20, 9), nn.Tanh(), nn.Linear(9, 5))
            trainer = pullback.trainer(net, "cross_entropy", "adam", example=x, target="debug", distributed=chosen)
        else:
            loss, optimizer = nn.CrossEntropyLoss(), optim.Adam(1e-3)
            trainer = pullback.training.make_trainer(make(8), loss, optimizer, target="debug", distributed=chosen)
        losses = trainer.fit(x, y, epochs=2, batch_size=8, verbose=0)["loss"]
        return losses, state_of(trainer)

    expected = train(4)
    for ranks, micro_batches in ((4, 1), (2, 2)):
        for found in on_ranks(ranks, lambda m=micro_batches: train(m)):
            assert_alike(found, expected, rtol=0.0, atol=0.0)


def test_metrics_are_those_of_all_rows_in_their_order() -> None:
    def cumulated(truth: np.ndarray, found: np.ndarray) -> float:
        return float(np.arange(len(truth)) @ (truth + 2 * found))

    names = ["accuracy", "balanced_accuracy", "f1_macro", "top2", "mcc", "kappa", "auc", "perplexity", cumulated]

    def evaluated(distributed: Any) -> Any:
        trainer = trainer_of(distributed)
        trainer.update(X[:8], Y[:8])
        results = [trainer.evaluate(X[:n], Y[:n], batch_size=size, metrics=names[1:])
                   for n, size in ((22, 8), (22, 3), (3, 3), (9, 8))]  # fmt: skip
        return [(found.loss, found.metrics, found.count) for found in results]

    assert_same_on_ranks(4, evaluated, "data")


def test_examples_by_their_number_are_fetched_by_one_rank_each() -> None:
    fetched: dict[int, list[int]] = {0: [], 1: []}

    class Examples:
        def __len__(self) -> int:
            return len(X)

        def __getitem__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
            fetched[pullback.distributed.rank()].append(number)
            return X[number], Y[number]

    def train(distributed: Any) -> Any:
        trainer = trainer_of(distributed)
        return trainer.fit(Examples(), batch_size=8, epochs=2, verbose=0)["loss"], state_of(trainer)

    expected = train(None)
    fetched[0].clear()
    for found in on_ranks(2, lambda: train("data")):
        assert_alike(found, expected, rtol=1e-4)


def test_values_lie_in_pieces() -> None:
    """What each rank holds: ⌈N / 4⌉ elements of what the stage divides."""

    def held(stage: str) -> tuple[list[int], list[int]]:
        trainer = trainer_of(stage)
        trainer.fit(X, Y, batch_size=8, verbose=0)
        values = trainer._values
        return [np.asarray(v).size for v in values.params], [np.asarray(v).size for v in values.optimizer_states]

    whole, pieces = [48, 8, 24, 3], [12, 2, 6, 1]
    for stage, params, states in (("data", whole, whole), ("zero1", whole, pieces), ("zero3", pieces, pieces)):
        for own_params, own_states in on_ranks(4, lambda s=stage: held(s)):
            assert own_params == params
            assert own_states[-8:] == states * 2


def test_one_rank_is_one_process() -> None:
    trainer = trainer_of("zero3")
    assert trainer._interface.distributed is None
    assert_alike(arrays(trainer.params), arrays(trainer_of(None).params))
