"""The examples run, briefly, as programs; their variants agree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOSS = re.compile(r"Loss: (\d+\.\d+)")
ACCURACY = re.compile(r"Accuracy on test dataset: (\d+\.\d+)%")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """An example in a process of its own, without network and without coloured output."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PULLBACK_OFFLINE": "1", "PULLBACK_DEBUG": "0"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


def runs_of(output: str) -> dict[str, str]:
    """What each run printed, by its title."""
    _, *parts = re.split(r"^--- (.*)$", output, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_trainer_forms_and_targets_agree():
    done = run("examples/tutorial_trainer.py", "--rows", "1280", "--epochs", "2")
    assert done.returncode == 0, done.stderr
    runs = runs_of(done.stdout)
    forms, targets = ("new", "older"), ("index", "one-hot")
    assert list(runs) == [f"{form} form, {target} targets" for form in forms for target in targets]
    losses = [[float(loss) for loss in LOSS.findall(text)] for text in runs.values()]
    accuracies = [[float(value) for value in ACCURACY.findall(text)] for text in runs.values()]
    for other in losses[1:]:
        assert other == pytest.approx(losses[0], abs=0.05)
    for other in accuracies[1:]:
        assert other == pytest.approx(accuracies[0], abs=0.5)
    assert losses[0][-1] < 0.6 * losses[0][0]
    assert accuracies[0][-1] > 55


def test_lowlevel_targets_agree():
    done = run("examples/tutorial_lowlevel.py", "--rows", "1280", "--epochs", "2")
    assert done.returncode == 0, done.stderr
    runs = runs_of(done.stdout)
    assert list(runs) == ["index targets", "one-hot targets"]
    for text in runs.values():
        assert "def loss_adjoint(" in text
        assert "loss: 147.365" in text  # 64 · log 10
        assert "steps: 1" in text
        assert "Steps: 40 " in text
        assert float(ACCURACY.findall(text)[-1]) > 55
    results = [[float(value) for value in ACCURACY.findall(text)] for text in runs.values()]
    assert results[1] == pytest.approx(results[0], abs=0.5)


@pytest.mark.parametrize("name", ["tutorial_trainer", "tutorial_lowlevel"])
def test_wrong_options_are_one_line(name):
    for option, message in ((("--rows", "63"), "at least 64"), (("--epochs", "0"), "at least 1")):
        done = run(f"examples/{name}.py", *option)
        assert done.returncode == 2
        assert message in done.stderr
        assert "Traceback" not in done.stderr
