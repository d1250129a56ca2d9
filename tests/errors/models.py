"""Small models and trainers that the programs make their mistakes with."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import pullback
from pullback.ir import IRModule
from pullback.relax import TensorStructInfo
from pullback.relax.training import SetupTrainer, Trainer, loss, optimizer
from pullback.script import ir as I
from pullback.script import relax as R

_random = np.random.default_rng(7)
X = _random.standard_normal((4, 3)).astype("float32")  # a batch of inputs
Y = _random.standard_normal((4, 2)).astype("float32")  # targets of the linear model
LABELS = np.array([0, 1, 1, 0])  # targets of the classifier


@I.ir_module
class linear:  # noqa: N801
    """x @ w + b."""

    I.module_attrs({"param_num": 2, "state_num": 0})

    @R.function
    def backbone(
        x: R.Tensor((4, 3), "float32"), w: R.Tensor((3, 2), "float32"), b: R.Tensor((2,), "float32")
    ) -> R.Tensor((4, 2), "float32"):
        with R.dataflow():
            out = R.add(R.matmul(x, w), b)
            R.output(out)
        return out


@I.ir_module
class counting:  # noqa: N801
    """x @ w, with two states: how often it ran, and the sum of its last predictions."""

    I.module_attrs({"param_num": 1, "state_num": 2})

    @R.function
    def backbone(
        x: R.Tensor((4, 3), "float32"),
        w: R.Tensor((3, 2), "float32"),
        calls: R.Tensor((), "int64"),
        seen: R.Tensor((2,), "float32"),
    ) -> R.Tuple(R.Tensor((4, 2), "float32"), R.Tensor((), "int64"), R.Tensor((2,), "float32")):
        with R.dataflow():
            out = R.matmul(x, w)
            calls_new = R.add(calls, R.const(1, "int64"))
            seen_new = R.sum(out, axis=0)
            R.output(out, calls_new, seen_new)
        return out, calls_new, seen_new


@functools.cache
def _compiled(name: str) -> tuple[IRModule, Any]:
    """The trainer module of a model and its virtual machine."""
    prediction = TensorStructInfo((4, 2), "float32")
    indices = TensorStructInfo((4,), "int64")
    model, error, update, target = {
        "linear": (linear, loss.MSELoss(), optimizer.MomentumSGD(0.1, 0.9), prediction),
        "counting": (counting, loss.MSELoss(), optimizer.SGD(0.1), prediction),
        "classifier": (linear, loss.CrossEntropyLoss(), optimizer.Adam(0.1), indices),
    }[name]
    module = SetupTrainer(error, update, [prediction, target])(model)
    return module, pullback.VirtualMachine(pullback.compile(module, "llvm"), pullback.cpu())


def _trainer(name: str, targets: np.ndarray) -> Trainer:
    module, machine = _compiled(name)
    trainer = Trainer(module, machine, pullback.cpu())
    trainer.seed(1)
    trainer.xavier_uniform_init_params(2)
    trainer.update(X, targets)
    return trainer


def linear_trainer() -> Trainer:
    """x @ w + b, mean squared error, SGD with momentum, after one step."""
    return _trainer("linear", Y)


def counting_trainer() -> Trainer:
    """x @ w with the states ``calls`` and ``seen``, mean squared error, SGD, after one step."""
    return _trainer("counting", Y)


def classifier_trainer() -> Trainer:
    """x @ w + b, cross entropy of two classes, Adam, after one step."""
    return _trainer("classifier", LABELS)
