"""The memory of a call by category, the picture of the arena, and `python -m pullback show`."""

from __future__ import annotations

import importlib.util
import math

import numpy as np
import pytest
from typer.testing import CliRunner

import pullback
from pullback.cli import app
from pullback.driver.artifact import Artifact, Layout
from pullback.driver.memory import MemoryReport
from pullback.driver.pipeline import plan_function, prepare
from pullback.ir.errors import UserError
from pullback.relax.training.optimizer import Adam
from pullback.script import from_source
from pullback.target import Target
from tests.driver.models import mlp_trainer_module
from tests.driver.peak import CAN_MEASURE, planned_and_measured

MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None


def test_categories_of_a_training_step():
    module = mlp_trainer_module((20, 12, 5), 8, Adam(0.01))
    executable = pullback.compile(module)
    report = executable.memory("__step")
    params = 4 * (20 * 12 + 12 + 12 * 5 + 5)
    assert report.categories["parameters"] == params
    assert report.categories["optimizer states"] == 2 * params + 8 + 2 * 8  # moments, count and two powers of betas
    assert report.categories["inputs"] == 4 * 8 * 20 + 8 * 8
    assert report.categories["outputs"] == 4
    assert report.arena["saved for backward"] >= 4 * 8 * 12
    assert sum(report.arena.values()) <= report.arena_bytes
    assert report.total == sum(report.categories.values())
    assert "saved for backward" in str(report) and report.steps[report.peak_step] in str(report)


def test_an_adjoint_by_itself_saves_for_its_backward_part():
    module = mlp_trainer_module((20, 12, 5), 8, Adam(0.01))
    report = pullback.compile(module).memory("backbone_loss_adjoint")
    assert report.arena["saved for backward"] >= 4 * 8 * 12
    assert report.categories["optimizer states"] == 0 and report.categories["inputs"] == 4 * 8 * 20 + 8 * 8


def test_a_function_without_gradients_saves_nothing():
    executable = pullback.compile(mlp_trainer_module((20, 12, 5), 8))
    report = pullback.VirtualMachine(executable).memory("backbone")
    assert "saved for backward" not in report.arena
    assert report.categories["inputs"] == 4 * 8 * 20 and report.categories["outputs"] == 4 * 8 * 5


SYMBOLIC = """
from pullback.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        y = R.exp(R.matmul(x, R.const([[1.0], [2.0], [3.0], [4.0]], "float32")))
        return y
"""


def test_symbolic_sizes_are_given():
    executable = pullback.compile(from_source(SYMBOLIC))
    report = executable.memory("main", n=10)
    assert report.categories["inputs"] == 160 and report.categories["outputs"] == 40
    assert report.categories["constants"] == 16
    with pytest.raises(UserError, match="symbolic sizes n; got none"):
        executable.memory("main")
    with pytest.raises(UserError, match="interpreter"):
        pullback.compile(from_source(SYMBOLIC), "debug").memory("main", n=10)


def test_places_survive_the_cache():
    plan = plan_function(prepare(mlp_trainer_module()), "__step", {}, Target("llvm"))
    artifact = Artifact(Layout.of(plan), tuple(plan.constants), (b"host", b"kernel"))
    assert Artifact.from_bytes(artifact.to_bytes()).layout == artifact.layout


def test_the_fullest_step_counts_memory_once_that_changes_hands():
    text = """
from pullback.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((64, 64), "float32")):
        y = R.sum(R.nn.softmax(R.matmul(R.nn.softmax(R.matmul(x, x)), x)), axis=0)
        return y
"""
    report = pullback.compile(from_source(text)).memory("main")
    assert isinstance(report, MemoryReport)
    assert sum(report.arena.values()) <= report.arena_bytes
    one = 64 * 64 * 4
    arena = [p for p in report.places if p.place == "arena" and p.nbytes == one]
    assert len({p.offset for p in arena}) < len(arena)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(mlp_trainer_module((20, 12, 5), 8).script())
    return path


def test_show_prints_the_module(file):
    result = CliRunner().invoke(app, ["show", str(file)])
    assert result.exit_code == 0 and "def backbone_loss_adjoint" in result.stdout


@pytest.mark.skipif(not MATPLOTLIB, reason="the picture needs matplotlib")
def test_show_memory_draws_a_picture(file, tmp_path):
    picture = tmp_path / "arena.png"
    result = CliRunner().invoke(app, ["show", str(file), "--memory", "--picture", str(picture)])
    assert result.exit_code == 0, result.output
    assert "parameters" in result.stdout
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    from matplotlib.image import imread

    assert math.prod(imread(picture).shape) > 10_000 and np.std(imread(picture)) > 0.05


def test_show_says_what_is_wrong(tmp_path):
    empty = tmp_path / "empty.py"
    empty.write_text("x = 1\n")
    result = CliRunner().invoke(app, ["show", str(empty)])
    assert result.exit_code == 1 and "defines no module" in result.output
    two = tmp_path / "two.py"
    two.write_text(SYMBOLIC + SYMBOLIC.replace("class Module", "class Other"))
    result = CliRunner().invoke(app, ["show", str(two)])
    assert result.exit_code == 1 and "several modules: Module, Other" in result.output
    result = CliRunner().invoke(app, ["show", str(two), "--name", "Other", "--memory", "--size", "n=10"])
    assert result.exit_code == 0 and "inputs" in result.stdout, result.output


@pytest.mark.skipif(not CAN_MEASURE, reason="/proc tells the peak of a process on Linux only")
def test_a_step_holds_what_was_planned():
    """The growth of a fresh process's peak memory is the planned bytes, within 2 %."""
    planned, measured = planned_and_measured(1024, 512)
    assert planned > 2**25
    assert 0.98 * planned <= measured <= 1.02 * planned


@pytest.mark.parametrize("name", ["PULLBACK_POISON", "PULLBACK_VERIFY"])
def test_switches_are_0_or_1(monkeypatch, name):
    monkeypatch.setenv(name, "yes")
    with pytest.raises(UserError, match=f"{name} must be 0 or 1, not 'yes'"):
        pullback.compile(mlp_trainer_module((7, 5), 3)).memory("__step")
