"""Trainers take subnormal numbers for zeros, unless they are told not to."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback.ir import ArgumentError, IRModule
from pullback.relax.training import SetupTrainer, make_trainer
from pullback.relax.training.loss import L1Loss
from pullback.relax.training.optimizer import SGD
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.target import Target

TINY = np.float32(1e-39)
needs_mode = pytest.mark.skipif(Target("llvm").arch not in ("x86_64", "aarch64"), reason="this CPU has no mode to set")


@I.ir_module
class Scale:
    I.module_attrs({"param_num": 1, "state_num": 0})

    @R.function
    def backbone(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = R.multiply(x, w)
            R.output(y)
        return y


def after_a_step(target: str = "llvm", **options: bool) -> np.ndarray:
    """The weights, which began as zeros: -1 times the gradient x of a sum of |w·x - 1|, if x isn't flushed."""
    trainer = make_trainer(Scale, L1Loss("sum"), SGD(1.0), target=target, init="zeros", **options)
    trainer.update_params(np.full(4, TINY), np.ones(4, np.float32))
    return trainer.export_params()["w"].numpy()


@needs_mode
def test_by_default() -> None:
    np.testing.assert_array_equal(after_a_step(), np.zeros(4, np.float32))
    np.testing.assert_array_equal(after_a_step(flush_subnormals=True), np.zeros(4, np.float32))
    np.testing.assert_array_equal(after_a_step(flush_subnormals=False), np.full(4, TINY))


def test_the_interpreter_keeps_them() -> None:
    np.testing.assert_array_equal(after_a_step("debug"), np.full(4, TINY))


@needs_mode
def test_an_attribute_of_any_module() -> None:
    """Two compilations of one function differ by it, from the cache too; without it subnormals stay."""
    for _ in range(2):
        for attrs, expected in (({}, TINY), ({"flush_subnormals": True}, 0), ({"flush_subnormals": False}, TINY)):
            module = IRModule({"main": Scale["backbone"]}, attrs)
            y = pullback.compile(module)["main"](np.full(4, TINY), np.ones(4, np.float32))
            np.testing.assert_array_equal(y.numpy(), np.full(4, expected, np.float32))


def test_what_is_no_answer() -> None:
    with pytest.raises(ArgumentError, match="flush_subnormals must be True or False, got 'yes'"):
        SetupTrainer(L1Loss(), SGD(1.0), [], flush_subnormals="yes")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="flush_subnormals must be True or False, got 1"):
        make_trainer(Scale, L1Loss(), SGD(1.0), flush_subnormals=1)  # type: ignore[arg-type]
