"""Arguments of losses, optimizers, schedules and trainers that do not do: what is wrong, at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pullback.ir import ArgumentError, DTypeError, ShapeError, UserError
from pullback.relax import TensorStructInfo
from pullback.relax.training import lr_schedule as schedule
from pullback.relax.training.initialize import generator, random_state
from pullback.relax.training.loss import (
    CategoricalCrossEntropyLoss,
    CrossEntropyLoss,
    CTCLoss,
    MSELoss,
    NLLLoss,
)
from pullback.relax.training.optimizer import (
    EMA,
    SGD,
    Accumulate,
    Adafactor,
    Adam,
    ClipByGlobalNorm,
    ClipByValue,
    MomentumSGD,
    ParameterGroups,
)
from tests.relax.training.models import classes, trainer_of


def info(*shape: Any, dtype: str = "float32") -> TensorStructInfo:
    return TensorStructInfo(shape, dtype)


def refused(build: Callable[[], Any], kind: type[UserError], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        build()
    assert type(caught.value) is kind


LOGITS, LABELS = info(4, 3), info(4, dtype="int64")

LOSSES: dict[str, tuple[Callable[[], Any], type[UserError], str]] = {
    "scalar": (lambda: CrossEntropyLoss()(info(), info(dtype="int64")), ShapeError, "predictions need a class axis"),
    "probabilities": (
        lambda: CrossEntropyLoss()(LOGITS, info(4, 2)),
        ShapeError,
        r"are probabilities and need their shape \(4, 3\), got \(4, 2\)",
    ),
    "one-hot": (lambda: CrossEntropyLoss()(LOGITS, info(4, 3, dtype="bool")), DTypeError, "must be floats or integers"),
    "indices": (
        lambda: CrossEntropyLoss()(LOGITS, info(3, dtype="int64")),
        ShapeError,
        r"class indices of shape \(4,\)",
    ),
    "indices dtype": (lambda: CrossEntropyLoss()(LOGITS, info(4)), DTypeError, "class indices must have an integer"),
    "logits": (
        lambda: CrossEntropyLoss()(info(4, 3, dtype="int64"), LABELS),
        DTypeError,
        "floating-point dtype, got int64",
    ),
    "weights": (lambda: NLLLoss()(LOGITS, LABELS, info(4)), ShapeError, "weights must be one factor for each class"),
    "weights rank": (lambda: NLLLoss()(LOGITS, LABELS, info(3, 1)), ShapeError, "one factor for each class"),
    "weights dtype": (lambda: NLLLoss()(LOGITS, LABELS, info(3, dtype="float64")), ShapeError, "one factor for each"),
    "categorical": (lambda: CategoricalCrossEntropyLoss()(LOGITS, LABELS), ShapeError, "must be one-hot or probabil"),
    "ignored": (lambda: CrossEntropyLoss(ignore_index=1.0), ArgumentError, "ignore_index must be an int, got 1.0"),
    "ignored flag": (lambda: NLLLoss(ignore_index=True), ArgumentError, "ignore_index must be an int, got True"),
    "reduction": (lambda: MSELoss("average"), ArgumentError, "reduction must be one of 'mean', 'sum', 'none'"),
    "shapes": (lambda: MSELoss()(info(4, 3), info(4, 2)), ShapeError, r"the same shape, got \(4, 3\) and \(4, 2\)"),
    "dtypes": (lambda: MSELoss()(info(4), info(4, dtype="float64")), DTypeError, "got float32 and float64"),
    "number": (
        lambda: MSELoss()(info(4)),
        ArgumentError,
        r"takes the types of \(predictions, targets\), got 1 of them",
    ),
    "more": (lambda: NLLLoss()(LOGITS, LABELS, info(3), info(3)), ArgumentError, r"\[, weights\]\), got 4 of them"),
    "a type": (lambda: MSELoss()((4, 3), info(4)), ArgumentError, "predictions must be a struct info or a variable"),
    "unknown shape": (lambda: MSELoss()(TensorStructInfo(ndim=2), info(4)), ShapeError, "a tensor of known shape"),
    "alignments": (lambda: CTCLoss().default_targets(LOGITS), ArgumentError, "how many labels a row has at the most"),
}

OPTIMIZERS: dict[str, tuple[Callable[[], Any], type[UserError], str]] = {
    "lr": (lambda: SGD(-0.1), ArgumentError, "lr .*-0.1"),
    "lr infinite": (lambda: SGD(math.inf), ArgumentError, "lr .*inf"),
    "lr nan": (lambda: Adam(math.nan), ArgumentError, "lr .*nan"),
    "lr text": (lambda: SGD("fast"), ArgumentError, "lr must be a number, got 'fast'"),
    "a class": (lambda: SGD(schedule.StepLR), ArgumentError, "lr must be a number or a schedule, got the class StepLR"),
    "beta": (lambda: Adam(0.1, (1.0, 0.9)), ArgumentError, "1.0"),
    "betas": (lambda: Adam(0.1, 0.9), ArgumentError, "betas"),
    "eps": (lambda: Adam(0.1, eps=-1e-8), ArgumentError, "eps"),
    "decay": (lambda: Adam(0.1, weight_decay=-1), ArgumentError, "weight_decay"),
    "flag": (lambda: Adam(0.1, amsgrad=1), ArgumentError, "amsgrad"),
    "nesterov": (lambda: MomentumSGD(0.1, 0.9, nesterov="yes"), ArgumentError, "nesterov"),
    "beta2_decay": (lambda: Adafactor(beta2_decay=0.1), ArgumentError, "beta2_decay must be at most 0, got 0.1"),
    "a pair": (lambda: Adafactor(eps=1e-3), ArgumentError, "eps"),
    "d": (lambda: Adafactor(d=0.5), ArgumentError, "d "),
    "every": (lambda: Accumulate(SGD(0.1), 0), ArgumentError, "every"),
    "max_norm": (lambda: ClipByGlobalNorm(SGD(0.1), -1), ArgumentError, "max_norm"),
    "norm_type": (lambda: ClipByGlobalNorm(SGD(0.1), 1, 0), ArgumentError, "norm_type must be positive, got 0"),
    "max_value": (lambda: ClipByValue(SGD(0.1), -1), ArgumentError, "max_value"),
    "average": (lambda: EMA(SGD(0.1), 1.1), ArgumentError, "decay must be at most 1, got 1.1"),
    "averages": (lambda: EMA(Accumulate(EMA(SGD(0.1)), 2)), ArgumentError, "EMA is in EMA"),
    "wrapped": (lambda: EMA(SGD), ArgumentError, "EMA wraps an optimizer, .*got the class SGD"),
    "groups": (lambda: ParameterGroups(SGD(0.1), [("*", {})]), ArgumentError, "groups must be a dict of patterns"),
    "of a wrapper": (lambda: ParameterGroups(EMA(SGD(0.1)), {}), ArgumentError, "takes a plain optimizer, not EMA"),
    "frozen and more": (
        lambda: ParameterGroups(SGD(0.1), {"w*": {"frozen": True, "lr": 1.0}}),
        ArgumentError,
        "group 'w\\*' is frozen, so that lr would have no effect",
    ),
    "no such": (lambda: ParameterGroups(SGD(0.1), {"w*": {"beta": 1}}), ArgumentError, "SGD has no argument beta"),
    "in a group": (lambda: ParameterGroups(SGD(0.1), {"w*": {"lr": -1}}), ArgumentError, "group 'w\\*': lr"),
}

SCHEDULES: dict[str, tuple[Callable[[], Any], type[UserError], str]] = {
    "step": (lambda: schedule.StepLR(0.1, 0), ArgumentError, "step_size"),
    "gamma": (lambda: schedule.ExponentialLR(0.1, -0.5), ArgumentError, "gamma"),
    "milestones": (lambda: schedule.MultiStepLR(0.1, 3), ArgumentError, "milestones must be a list of steps, got 3"),
    "milestone": (lambda: schedule.MultiStepLR(0.1, [3, -1]), ArgumentError, r"milestones\[1\]"),
    "iterations": (lambda: schedule.LinearLR(0.1, total_iters=0), ArgumentError, "total_iters"),
    "half": (lambda: schedule.CosineAnnealingLR(0.1, 2.5), ArgumentError, "T_max"),
    "restarts": (lambda: schedule.CosineAnnealingWarmRestarts(0.1, 5, 0), ArgumentError, "T_mult"),
    "start": (lambda: schedule.OneCycleLR(0.1, 10, 1.5), ArgumentError, "pct_start must be at most 1, got 1.5"),
    "strategy": (lambda: schedule.OneCycleLR(0.1, 10, anneal_strategy="up"), ArgumentError, '"cos" or "linear"'),
    "divisor": (lambda: schedule.OneCycleLR(0.1, 10, div_factor=0), ArgumentError, "div_factor must be positive"),
    "one step": (lambda: schedule.OneCycleLR(0.1, 1), ArgumentError, "total_steps"),
    "no phase": (lambda: schedule.OneCycleLR(0.1, 10, 0.1), ArgumentError, "each needs one step"),
    "no last phase": (lambda: schedule.OneCycleLR(0.1, 10, 1.0), ArgumentError, "each needs one step"),
    "nothing": (lambda: schedule.SequentialLR([], []), ArgumentError, "a list of at least one schedule"),
    "too few": (lambda: schedule.SequentialLR([0.1, 0.2], []), ArgumentError, "2 schedules need 1 milestones"),
    "falling": (lambda: schedule.SequentialLR([1, 2, 3], [5, 3]), ArgumentError, r"in rising order, got \[5, 3\]"),
    "no schedule": (lambda: schedule.SequentialLR(["fast"], []), ArgumentError, r"schedules\[0\]"),
}

X, Y = classes(20)


def fitted(x: Any = X, y: Any = Y, model: Any = None, **options: Any) -> Callable[[], Any]:
    return lambda: trainer_of(model=model).fit(x, y, verbose=0, **options)


DATA: dict[str, tuple[Callable[[], Any], type[UserError], str]] = {
    "epochs": (fitted(epochs=0), ArgumentError, "epochs must be an int ≥ 1, got 0"),
    "epochs flag": (fitted(epochs=True), ArgumentError, "epochs must be an int ≥ 1, got True"),
    "batch": (fitted(batch_size=0), ArgumentError, "batch_size must be an int ≥ 1, got 0"),
    "batch float": (fitted(batch_size=4.0), ArgumentError, "batch_size must be an int ≥ 1, got 4.0"),
    "seed": (fitted(seed=-1), ArgumentError, "a seed must be an int ≥ 0, got -1"),
    "rows": (fitted(y=Y[1:]), ArgumentError, "the same number of rows: .* has 20, .* has 19"),
    "no rows": (fitted(x=X[:0], y=Y[:0]), ArgumentError, "the data set is empty: it has 0 rows"),
    "columns": (fitted(x=X[:, 1:]), ShapeError, r"must have shape \(rows, 20\), got \(20, 19\)"),
    "label": (fitted(y=np.where(np.arange(20) == 7, 5, Y)), ArgumentError, r"0 to 4, got 5 at index \(7,\)"),
    "label below": (fitted(y=np.where(np.arange(20) == 7, -1, Y)), ArgumentError, r"0 to 4, got -1 at index \(7,\)"),
    "validation": (
        fitted(validation=X),
        ArgumentError,
        r"validation must be a pair \(inputs, targets\), .*, got ndarray",
    ),
    "validation of four": (fitted(validation=(X, Y, Y, Y)), ArgumentError, "validation must be a pair"),
    "validation label": (fitted(validation=(X, Y + 5)), ArgumentError, "classes from 0 to 4"),
    "values change": (fitted(y=Y + 0.5), DTypeError, "int64"),
}

CASES = {
    f"{group}: {name}": case
    for group, cases in {"loss": LOSSES, "optimizer": OPTIMIZERS, "schedule": SCHEDULES, "data": DATA}.items()
    for name, case in cases.items()
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused(name: str) -> None:
    refused(*CASES[name])


def test_bounds_that_may_be_reached() -> None:
    """The last value that each of those takes."""
    Adam(0.0, (0.0, 0.0), 0.0, 0.0)
    Adafactor(beta2_decay=0.0, d=1.0)
    EMA(SGD(0.0), 1.0)
    ClipByValue(ClipByGlobalNorm(Accumulate(SGD(0.1), 1), 0.0, math.inf), 0.0)
    schedule.OneCycleLR(0.1, 10, 0.2)
    schedule.ConstantLR(0.1, 0.0, 0)
    schedule.SequentialLR([0.1, 0.2, 0.3], [0, 0])
    fitted(y=np.where(np.arange(20) == 7, 4, Y))()
    assert trainer_of(loss=CrossEntropyLoss(ignore_index=-1)).fit(X, np.where(Y == 1, -1, Y), verbose=0).epochs


@pytest.mark.parametrize("seed", [-1, 1.0, True, "1", None])
def test_seeds(seed: Any) -> None:
    with pytest.raises(ArgumentError, match="a seed must be an int ≥ 0"):
        generator(seed)


def test_a_seed_is_kept_whole() -> None:
    """Of 64 bits: two that differ in the upper half give other random numbers."""
    assert random_state(2**63 + 2**40 + 5).numpy().tolist() == [2**63 + 2**40 + 5, 0]
    assert random_state(2**64 + 7).numpy().tolist() == [7, 0] and random_state(0).dtype == "uint64"
