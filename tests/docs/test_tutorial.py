"""The tutorial runs from top to bottom, on a small part of the data, and both methods learn."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import ROOT, run_document


def test_tutorial(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("PULLBACK_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    module = run_document(ROOT / "docs" / "tutorial.md", tmp_path)
    output = capfd.readouterr().out
    accuracies = [float(value) for value in re.findall(r"Accuracy on test dataset: (\d+\.\d+)%", output)]
    assert len(accuracies) == module.epochs + 1
    assert min(accuracies[module.epochs - 1 :]) > 50
    assert module.older_losses == pytest.approx(module.losses[: len(module.older_losses)], rel=1e-5)
    assert module.one_hot_losses == pytest.approx(module.losses[: len(module.one_hot_losses)], rel=1e-4)
    assert module.step_loss == pytest.approx(147.365, abs=0.01)
    assert re.search(r"^fused_matmul_\w*subtract", output, re.MULTILINE), "the update is fused with the gradient"
