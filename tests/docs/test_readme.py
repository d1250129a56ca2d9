"""The program in README.md runs, and learns."""

from __future__ import annotations

import re

from tests.docs.blocks import ROOT, run_document


def test_readme(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("PULLBACK_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    module = run_document(ROOT / "README.md", tmp_path)
    accuracies = [float(value) for value in re.findall(r"accuracy=(\d\.\d+)", capfd.readouterr().out)]
    assert len(accuracies) == 1
    assert accuracies[0] > 0.7
    assert module.trainer.steps > 100
