"""The convention of trainer modules: one attribute, or the older integers, says what functions take and return."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback
from pullback.ir import ArgumentError, IRModule
from pullback.relax import TensorStructInfo
from pullback.relax.convention import (
    ADJOINT,
    ATTRIBUTE,
    BACKBONE,
    EVALUATE,
    GRADIENT,
    INPUT,
    LOSS,
    LOSS_SCALE,
    PARAMETER,
    RANDOM,
    STATE,
    STEP,
    TARGET,
    Convention,
)
from pullback.relax.training import SetupTrainer, Trainer
from pullback.relax.training.loss import CrossEntropyLoss, MSELoss
from pullback.relax.training.optimizer import SGD, Adam, RunTime
from pullback.script import from_source
from tests.relax.training.models import mlp, with_state

PAIR = [TensorStructInfo((4, 2))] * 2
LABELS = [TensorStructInfo((8, 5)), TensorStructInfo((8,), "int64")]


def modules() -> dict[str, IRModule]:
    return {
        "states": SetupTrainer(MSELoss(), SGD(0.1), PAIR, legalize=False)(with_state()),
        "lowered": SetupTrainer(CrossEntropyLoss(), Adam(RunTime(0.1)), LABELS)(mlp()),
        "scaled": SetupTrainer(CrossEntropyLoss(), Adam(0.1), LABELS, precision="float16")(mlp()),
    }


MODULES = modules()


def test_what_the_functions_take() -> None:
    convention = Convention.of(MODULES["states"])
    model = ((INPUT, 0), (PARAMETER, 0), (STATE, 0), (STATE, 1))
    assert convention[BACKBONE].takes == model
    assert convention[BACKBONE].returns == (("output", 0), (STATE, 0), (STATE, 1))
    assert convention[LOSS].takes == convention[EVALUATE].takes == (*model, (TARGET, 0))
    assert convention[ADJOINT].returns == (("loss", 0), (STATE, 0), (STATE, 1), (GRADIENT, 0))
    assert convention[STEP].takes == (*model, (TARGET, 0), ("optimizer state", 0))
    assert convention[STEP].returns == (("loss", 0), ("divisor", 0), *convention.kept)
    assert convention[STEP].donated == (1, 2, 3, 5)
    assert convention[LOSS].arrange({v: i for i, v in enumerate(convention[LOSS].takes)}) == [0, 1, 2, 3, 4]


def test_kinds_of_optimizer_states() -> None:
    convention = Convention.of(MODULES["scaled"])
    assert convention[ADJOINT].takes[-1] == (LOSS_SCALE, 0)
    assert convention[ADJOINT].takes[-1] in convention.optimizer_states
    assert [v for v in Convention.of(MODULES["lowered"]).optimizer_states if v[0] == "hyperparameter"]


@pytest.mark.parametrize("name", MODULES)
def test_it_is_printed_and_read(name: str) -> None:
    module = MODULES[name]
    again = from_source(module.script())
    assert again.attrs[ATTRIBUTE] == module.attrs[ATTRIBUTE]
    assert Convention.of(again) == Convention.of(module)
    assert Convention.of(module).attribute == module.attrs[ATTRIBUTE]


def older(module: IRModule) -> IRModule:
    """As a version made it that knew integers only."""
    convention = Convention.of(module)
    result = module.without_attr(ATTRIBUTE)
    random = len(convention[LOSS].taken(RANDOM))
    scale = [i for i, (kind, _) in enumerate(convention.optimizer_states) if kind == LOSS_SCALE]
    result = result.with_attr("random_state_num", random) if random else result
    return result.with_attr("loss_scale_state", scale[0]) if scale else result


@pytest.mark.parametrize("name", MODULES)
def test_it_follows_from_the_older_attributes(name: str) -> None:
    known, found = Convention.of(MODULES[name]), Convention.of(older(MODULES[name]))
    for function in (BACKBONE, LOSS, ADJOINT):
        assert found[function] == known[function]
    assert [kind for kind, _ in found[STEP].takes if kind != "optimizer state"] == [
        kind for kind, _ in known[STEP].takes if kind not in ("optimizer state", "hyperparameter")
    ]
    assert found[STEP].donated == known[STEP].donated


@pytest.mark.parametrize("name", MODULES)
def test_an_older_module_trains_alike(name: str) -> None:
    losses = []
    for module in (MODULES[name], older(MODULES[name])):
        trainer = Trainer(module, pullback.VirtualMachine(pullback.compile(module)), pullback.cpu())
        trainer.xavier_uniform_init_params(seed=0)
        slots = (*trainer._interface.inputs, *trainer._interface.targets)
        rng = np.random.default_rng(0)
        x, y = (rng.integers(0, 2, s.info.shape).astype(s.info.dtype) for s in slots)
        losses.append([trainer.update(x, y).item() for _ in range(3)])
    assert losses[0] == losses[1]


def test_a_module_without_a_convention() -> None:
    assert Convention.of(IRModule({})).functions == {}
    assert list(Convention.of(mlp()).functions) == [BACKBONE]


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        (3, "maps functions to what they take and return"),
        ({"backbone": ((("input", 1),),)}, "maps functions to what they take and return"),
        ({"backbone": ((("input", "x"),), ())}, "maps functions to what they take and return"),
        ({"backbone": ((("input", float("inf")),), ())}, "maps functions to what they take and return"),
        ({"backbone": ((("inptu", 1),), ())}, "the unknown kind 'inptu'; there are: input, parameter"),
        (
            {"backbone": ((("input", 1), ("parameter", 2)), (("output", 1),))},
            "backbone takes 7 tensors, by the convention of its module 3: input, 2 × parameter",
        ),
        (
            {"backbone": ((("input", 1), ("parameter", 6)), (("output", 1), ("state", 1)))},
            "backbone returns 1 tensors, by the convention of its module 2: output, state",
        ),
    ],
)
def test_errors(attribute: Any, message: str) -> None:
    module = mlp().with_attr(ATTRIBUTE, attribute)
    with pytest.raises(ArgumentError, match=message):
        Convention.of(module)


@pytest.mark.parametrize(
    ("function", "which", "old", "new", "message"),
    [
        (LOSS, 0, (PARAMETER, 6), (PARAMETER, 6, 1), "backbone_loss takes parameter number 6, which nothing gives"),
        ("optimizer", 0, (GRADIENT, 6), (GRADIENT, 6, 3), "optimizer takes gradient number 6, which nothing gives"),
        ("optimizer", 0, (GRADIENT, 6), (TARGET, 6), "optimizer takes target number 1, which nothing gives"),
        (ADJOINT, 0, (TARGET, 1), (INPUT, 1, 0), "backbone_loss_adjoint takes input number 0, twice"),
    ],
)
def test_a_step_takes_what_there_is(function: str, which: int, old: Any, new: Any, message: str) -> None:
    module = MODULES["lowered"]
    attribute = dict(Convention.of(module).attribute)
    roles = list(attribute[function])
    assert old in roles[which]
    roles[which] = tuple(new if run == old else run for run in roles[which])
    attribute[function] = tuple(roles)
    changed = module.with_attr(ATTRIBUTE, {k: v for k, v in attribute.items() if k in module.functions})
    with pytest.raises(ArgumentError, match=message):
        pullback.compile(changed, "debug")


@pytest.mark.parametrize("name", [LOSS, ADJOINT, "optimizer"])
def test_a_convention_that_lacks_a_function(name: str) -> None:
    attribute = {k: v for k, v in MODULES["states"].attrs[ATTRIBUTE].items() if k != name}
    assert len(attribute) < len(MODULES["states"].attrs[ATTRIBUTE])
    changed = MODULES["states"].with_attr(ATTRIBUTE, attribute)
    with pytest.raises(ArgumentError, match="says nothing of the function"):
        Trainer(changed, pullback.VirtualMachine(pullback.compile(changed)), pullback.cpu())
