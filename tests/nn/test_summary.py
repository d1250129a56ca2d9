"""Summaries and profiles of modules and their trainers: layers, exact counts, shares of time."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

import pullback
from pullback import nn, optim
from pullback.ir.errors import ArgumentError
from pullback.script import relax as R

X = np.random.default_rng(0).random((16, 6), dtype=np.float32)
Y = np.arange(16) % 3


class Block(nn.Module):
    def __init__(self, width: int):
        self.fc = nn.Linear(width, width, bias=False)

    def forward(self, x):
        return R.nn.relu(self.fc(x))


class Net(nn.Module):
    def __init__(self):
        self.stem = nn.Linear(6, 8)
        self.blocks = nn.ModuleList([Block(8), Block(8)])
        self.head = nn.Linear(8, 3)
        self.count = nn.Buffer(np.zeros((), "float32"))

    def forward(self, x):
        self.count = self.count + 1.0
        h = R.tanh(self.stem(x))
        for block in (*self.blocks, self.blocks[1]):
            h = block(h)
        return self.head(h)


def net() -> Net:
    made = Net()
    made.stem.requires_grad_(False)
    return made


@pytest.fixture(scope="module")
def trainer():
    return pullback.trainer(net(), "cross_entropy", "adam", example=X)


def by_name(summary):
    return {row.name: row for row in summary.rows}


def test_a_module_alone(capsys):
    summary = net().summary(X)
    assert str(summary) in capsys.readouterr().out
    rows = by_name(summary)
    assert list(rows) == ["(model)", "stem", "blocks.0", "blocks.0.fc", "blocks.1", "blocks.1.fc", "head"]
    assert [row.output for row in rows.values()] == ["(n, 3)"] + ["(n, 8)"] * 5 + ["(n, 3)"]
    assert (rows["blocks.0.fc"].kind, rows["blocks.1.fc"].kind) == ("Linear", "Linear (2 calls)")
    assert summary.parameters == 6 * 8 + 8 + 2 * 64 + 8 * 3 + 3 == sum(row.parameters for row in summary.rows)
    assert (summary.frozen, rows["stem"].frozen, rows["(model)"].states) == (56, 56, 1)
    assert summary.sizes == {"parameters": (211, 844), "states": (1, 4)}
    assert summary.flops is None and summary.memory is None
    without = net().summary()
    assert without.parameters == 211 and all(row.output == "" for row in without.rows)
    assert {row.name for row in without.rows} == {*rows, "blocks"}


def test_the_flops_of_a_matmul_are_counted_by_hand():
    rows, inputs, outputs = 16, 6, 4
    made = pullback.trainer(nn.Linear(inputs, outputs, bias=False), "mse", optim.SGD(lr=0.1), example=X)
    summary = made.summary(rows)
    layer = by_name(summary)["(model)"]
    forward = gradient = 2 * rows * inputs * outputs
    update = 2 * inputs * outputs  # a multiplication, a subtraction
    loss = 3 * rows * outputs  # in the product's kernel: the difference, its square, and its gradient
    assert layer.flops == forward + gradient + update + loss
    assert summary.flops == layer.flops + by_name(summary)["loss, update"].flops
    assert summary.rows_of_batch == rows


def test_a_trainer(trainer, capsys):
    summary = trainer.summary(16)
    assert str(summary) in capsys.readouterr().out
    rows = by_name(summary)
    assert sum(row.flops or 0 for row in summary.rows) == summary.flops
    assert rows["blocks.1.fc"].flops > 1.5 * rows["blocks.0.fc"].flops  # it is called twice
    assert rows["stem"].frozen == 56 and summary.sizes["states"] == (1, 4)
    assert summary.sizes["optimizer states"][0] == sum(v.size for v in trainer.optimizer_states)
    assert summary.sizes["optimizer states"][1] == sum(v.nbytes for v in trainer.optimizer_states)
    assert summary.memory.categories == trainer.vm.memory("__step", n=16).categories
    for name, (_, nbytes) in summary.sizes.items():
        assert summary.memory.categories[name] == nbytes
    assert all(row.share is None for row in summary.rows)
    assert f"A step of 16 rows: {summary.flops:,} FLOPs" in str(summary)
    assert repr(summary) == "Summary(Net: cross_entropy_loss, Adam; 211 parameters in 8 rows)"
    assert trainer.summary(32).flops > 1.9 * summary.flops


def test_depth_folds(trainer):
    whole, folded = trainer.summary(16), trainer.summary(16, depth=1)
    assert [row.name for row in folded.rows] == ["(model)", "stem", "blocks", "head", "loss, update"]
    for column in ("parameters", "frozen", "states", "flops"):
        assert sum(getattr(r, column) or 0 for r in folded.rows) == sum(getattr(r, column) or 0 for r in whole.rows)
    assert [row.name for row in trainer.summary(16, depth=0).rows] == ["(model)", "loss, update"]


def test_profiles_name_layers(trainer, capsys, tmp_path):
    before = trainer.state_dict()["head.weight"].numpy()
    report = trainer.profile_step(X, Y)  # nothing was said at construction
    assert str(report) in capsys.readouterr().out
    assert np.array_equal(trainer.state_dict()["head.weight"].numpy(), before)
    layers = report.layers()
    assert {"stem", "blocks.0.fc", "blocks.1.fc", "head", None} <= set(layers)
    assert sum(call.microseconds for call in layers.values()) == pytest.approx(report.total)
    summary = trainer.summary()
    assert summary.rows_of_batch == 16  # that of the profile
    assert sum(row.share or 0 for row in summary.rows) == pytest.approx(1)
    assert sum(call.flops for call in report.calls) == summary.flops
    assert by_name(summary)["stem"].flops == layers["stem"].flops
    report.chrome_trace(tmp_path / "step.json")
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    assert any(event["args"].get("layer") == "head" for event in events)


def test_fixed_and_other_sizes():
    fixed = pullback.trainer(net(), "cross_entropy", "sgd", example=R.Tensor((4, 6), "float32"))
    assert (fixed.summary().rows_of_batch, fixed.summary(9).rows_of_batch) == (4, 9)
    words = pullback.trainer(nn.Linear(6, 3), "mse", "sgd", example=R.Tensor(("n", "t", 6), "float32"))
    assert words.summary(2, t=5).flops > words.summary(2, t=1).flops
    with pytest.raises(ArgumentError, match=r"symbolic sizes t, .*\n.*summary\(t=…\)"):
        words.summary(2)


def test_mistakes(trainer):
    for batch_size in (0, -1, 2.5, True, "16"):
        with pytest.raises(ArgumentError, match="batch_size must be an int ≥ 1"):
            trainer.summary(batch_size)
    with pytest.raises(ArgumentError, match="depth must be an int ≥ 0"):
        trainer.summary(depth=-1)
    with pytest.raises(ArgumentError, match="symbolic sizes n; got m, n"):
        trainer.summary(16, m=3)


def test_what_is_printed(trainer, monkeypatch, capsys):
    """In a terminal tables with lines, in a notebook nothing: it shows what the cell returns."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    trainer.summary(16)
    trainer.profile_step(X, Y)
    assert capsys.readouterr().out.count("╭") == 4
    monkeypatch.setattr("pullback.relax.training.summary.in_notebook", lambda: True)
    assert trainer.summary(16).rows and trainer.profile_step(X, Y).calls
    assert capsys.readouterr().out == ""


def test_a_copy_has_the_same_summary(trainer):
    made = pickle.loads(pickle.dumps(trainer))
    assert made.summary(16).rows == trainer.summary(16).rows


def test_a_trainer_says_what_it_is_in_a_line(trainer):
    text = repr(trainer)
    assert text.startswith(
        "Trainer(Net, 211 parameters (stem.weight, stem.bias, blocks.0.fc.weight, blocks.1.fc.weight, 2 more);"
    )
    assert "\n" not in text and "optimizer: Adam" in text
