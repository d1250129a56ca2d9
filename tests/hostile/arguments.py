"""Anything for each argument of what users call."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pullback
from pullback import relax
from pullback.relax.training import callbacks, loss, lr_schedule, metrics, optimizer
from tests.errors.models import X, Y, linear, linear_trainer
from tests.errors.test_errors import digest
from tests.hostile.arrays import OTHERS
from tests.hostile.oracle import Finding, outcome, shown

JUNK = [
    *OTHERS, -1, 2**31, 2**63, 2**70, -(2**70), 1e300, float("nan"), float("inf"), "x" * 10_000, "a\0b", "mean",
    "llvm", "debug",
    "llvm -mcpu=none", np.int64(3), np.float32(0.5), np.ones(3), [1, 2], (1,), {"w": 1}, {"w": None}, {1: 2}, linear,
    loss.MSELoss(),
    optimizer.SGD(0.1), relax.TensorStructInfo((2,), "float32"), pullback.cpu(), b"\xff", "\ud800", [[]] * 3, Y,
    frozenset(),
]  # fmt: skip

trainer = functools.cache(linear_trainer)

CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "fit": (
        lambda **a: trainer().fit(X, Y, verbose=0, **a),
        {
            "epochs": 1,
            "batch_size": 4,
            "shuffle": True,
            "seed": 1,
            "validation": (X, Y),
            "detect_nan": False,
            "callbacks": (),
            "metrics": None,
            "train_metrics": False,
            "logger": None,
        },
    ),
    "verbose": (lambda **a: trainer().fit(X, Y, **a), {"verbose": 0}),
    "evaluate": (lambda **a: trainer().evaluate(X, Y, **a), {"batch_size": 4, "metrics": None, "averaged": False}),
    "lr_find": (
        lambda **a: trainer().lr_find(X, Y, **a),
        {"start": 1e-7, "end": 1.0, "steps": 10, "batch_size": None},
    ),
    "EarlyStopping": (
        callbacks.EarlyStopping,
        {
            "monitor": "loss",
            "patience": 0,
            "min_delta": 0.0,
            "mode": "auto",
            "restore_best": False,
            "baseline": None,
            "start_from_epoch": 0,
        },
    ),
    "ModelCheckpoint": (
        callbacks.ModelCheckpoint,
        {
            "path": "x",
            "monitor": "loss",
            "mode": "auto",
            "save_top_k": 1,
            "save_last": False,
            "every_n_epochs": 1,
        },
    ),
    "Checkpoint": (
        callbacks.Checkpoint,
        {"path": "x", "every_n_steps": 1, "every_n_epochs": 1, "keep": 1},
    ),
    "ReduceLROnPlateau": (
        callbacks.ReduceLROnPlateau,
        {
            "monitor": "loss",
            "factor": 0.1,
            "patience": 10,
            "min_delta": 1e-4,
            "cooldown": 0,
            "min_lr": 0.0,
            "mode": "auto",
            "hyperparameter": "lr",
        },
    ),
    "CSVLogger": (callbacks.CSVLogger, {"path": "x", "append": False}),
    "TensorBoard": (callbacks.TensorBoard, {"dir": "x", "batches": False}),
    "LambdaCallback": (callbacks.LambdaCallback, {"on_epoch_end": None, "on_batch_end": None}),
    "Metric": (metrics.Metric, {"function": print, "name": "", "needs": "", "mode": ""}),
    "seed": (lambda **a: trainer().seed(**a), {"seed": 1}),
    "xavier": (lambda **a: trainer().xavier_uniform_init_params(**a), {"seed": 1}),
    "load_params": (lambda **a: trainer().load_params(**a), {"params": {}}),
    "load_states": (lambda **a: trainer().load_states(**a), {"states": {}}),
    "set_hyperparameter": (lambda **a: trainer().set_hyperparameter(**a), {"name": "lr", "value": 0.1}),
    "save": (lambda **a: trainer().save(**a), {"path": None}),
    "load": (lambda **a: trainer().load(**a), {"path": "none", "strict": True, "params_only": False}),
    "trainer": (
        lambda **a: pullback.trainer(**a),
        {
            "module": linear,
            "loss": loss.MSELoss(),
            "optimizer": optimizer.SGD(0.1),
            "target": "debug",
            "seed": 0,
            "init": "zeros",
            "targets": None,
            "precision": None,
            "flush_subnormals": True,
        },
    ),
    "compile": (lambda **a: pullback.compile(**a), {"module": linear, "target": "debug"}),
    "SGD": (optimizer.SGD, {"lr": 0.1, "weight_decay": 0.0}),
    "MomentumSGD": (
        optimizer.MomentumSGD,
        {"lr": 0.1, "momentum": 0.9, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False},
    ),
    "Adam": (optimizer.Adam, {"lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}),
    "CrossEntropyLoss": (loss.CrossEntropyLoss, {"reduction": "mean", "ignore_index": -100, "label_smoothing": 0.0}),
    "BCELoss": (loss.BCELoss, {"reduction": "mean", "weight": None}),
    "StepLR": (lr_schedule.StepLR, {"lr": 0.1, "step_size": 3, "gamma": 0.5}),
    "Target": (pullback.target.Target, {"spec": "llvm"}),
    "TensorStructInfo": (relax.TensorStructInfo, {"shape": (2,), "dtype": "float32"}),
    "tensor": (pullback.tensor, {"data": [1.0], "dtype": "float32", "device": None, "copy": None}),
    "zeros": (pullback.nd.zeros, {"shape": (2,), "dtype": "float32", "device": None}),
    "from_source": (pullback.script.from_source, {"text": "x = 1", "name": None, "extra_vars": None, "file": None}),
    "const": (relax.const, {"value": 1.0, "dtype": "float32"}),
}


def case(r: random.Random, folder: Path) -> None:
    name = r.choice(list(CALLS))
    call, right = CALLS[name]
    key = r.choice(list(right))
    given = {**right, key: r.choice(JUNK)}
    if name == "fit" and isinstance(given["epochs"], int) and given["epochs"] > 3:
        return  # that many would take as long as they take
    if name == "save" and isinstance(given["path"], (str, bytes, Path)):
        return
    if name == "zeros" and isinstance(given["shape"], int):
        given["shape"] %= 1000
    what = f"{name}({key}={shown(given[key])})"
    before = digest(trainer())
    _, error = outcome(what, lambda: call(**given))
    if error is not None and digest(trainer()) != before:
        raise Finding(f"{what}: the trainer was changed by a failed call")
