"""Summaries and profiles of models that are written in script: their rows are the lines of the backbone."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import optim
from pullback.relax.training.optimizer import SGD, ParameterGroups
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Model:
    I.module_attrs({"param_num": 4, "state_num": 0})

    @R.function
    def backbone(
        x: R.Tensor((16, 8), "float32"),
        w0: R.Tensor((8, 16), "float32"),
        b0: R.Tensor((16,), "float32"),
        w1: R.Tensor((16, 4), "float32"),
        b1: R.Tensor((4,), "float32"),
    ):
        hidden = R.nn.relu(x @ w0 + b0)
        scores = hidden @ w1 + b1
        return scores


X, Y = np.random.default_rng(0).random((16, 8), dtype=np.float32), np.arange(16) % 4


def test_lines_of_a_script():
    trainer = pullback.trainer(Model, "cross_entropy", "sgd")
    summary = trainer.summary()
    hidden, scores, rest = summary.rows
    assert (hidden.name, hidden.kind, hidden.output) == ("hidden", "matmul, add, nn.relu", "(16, 16)")
    assert (scores.name, scores.output, rest.name) == ("scores", "(16, 4)", "loss, update")
    assert (hidden.parameters, scores.parameters, summary.parameters) == (144, 68, 212)
    assert hidden.flops > 2 * 2 * 16 * 8 * 16 and summary.flops == sum(row.flops for row in summary.rows)
    report = trainer.profile_step(X, Y)
    assert set(report.layers()) == {"hidden", "scores", None} and " layer " in str(report)
    assert sum(row.share for row in trainer.summary().rows) == pytest.approx(1)


@pytest.mark.parametrize("wrapped", [False, True])
def test_parameters_that_the_optimizer_freezes(wrapped):
    optimizer = ParameterGroups(optim.Adam(), {"*0": {"frozen": True}}) if wrapped else SGD(0.1)
    model = Model if wrapped else Model.with_attr("frozen", ("w0", "b0"))
    summary = pullback.trainer(model, "cross_entropy", optimizer).summary()
    assert [row.frozen for row in summary.rows] == [144, 0, 0] and summary.frozen == 144


def test_the_interpreter_has_no_kernels():
    trainer = pullback.trainer(Model, "cross_entropy", "adam", target="debug")
    summary = trainer.summary()
    assert (summary.parameters, summary.flops, summary.memory) == (212, None, None)
    assert "FLOPs" not in str(summary) and "optimizer states" in str(summary)
