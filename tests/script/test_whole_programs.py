"""The law of script on what the rest of the compiler makes: calls of every op, and the stages of a trainer module."""

from __future__ import annotations

import pytest

import pullback
from pullback import relax
from pullback.demo.mlp import MLP
from pullback.driver import pipeline
from pullback.ir import IRModule, Op
from pullback.relax.training import SetupTrainer
from pullback.relax.training.loss import CrossEntropyLoss
from pullback.relax.training.optimizer import Adam
from pullback.target import Target
from tests import samples
from tests.helpers import round_trip


@pytest.mark.parametrize("op", samples.all_ops(), ids=lambda op: op.short)
def test_every_op(op: Op) -> None:
    for case in samples.cases(op, samples.dtypes_of(op)[0]):
        params = [relax.Var(f"x{i}", relax.TensorStructInfo(a.shape, a.dtype.name)) for i, a in enumerate(case.args)]
        builder = relax.BlockBuilder()
        with builder.function("main", params):
            args = (params,) if op.signature.variadic else params
            builder.emit_func_output(builder.emit(op(*args, **case.attrs)))
        assert f"R.{op.short}(" in round_trip(builder.get())


def trainer_module() -> IRModule:
    infos = [relax.TensorStructInfo((64, 10), "float32"), relax.TensorStructInfo((64, 10), "float32")]
    return SetupTrainer(CrossEntropyLoss(reduction="sum"), Adam(0.01), infos)(MLP)


def test_a_trainer_module() -> None:
    text = round_trip(trainer_module())
    assert max(map(len, text.splitlines())) <= 100


def test_the_stages_of_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = []

    def check(stage: str, result: pullback.ir.Node, name: str) -> pullback.ir.Node:
        stages.append(stage)
        round_trip(result)
        return result

    monkeypatch.setattr(pipeline, "show_stage", check)
    module = pipeline.prepare(trainer_module())
    for name in ("backbone", "backbone_loss_adjoint", "optimizer"):
        pipeline.plan_function(module, name, {}, Target("llvm"))
    assert stages[-1] == "plan_memory"
