"""The README's script of PyTorch and its changed form print the same losses, and save the same weights."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.docs.blocks import ROOT

torch = pytest.importorskip("torch")

MOST_CHANGED = 5


def scripts() -> tuple[str, str, int]:
    """The script before and after, and how many lines are new."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.search(r"```diff\n(.*?)```", text, re.DOTALL)[1].splitlines()
    before = [line[1:] for line in lines if line[0] in " -"]
    after = [line[1:] for line in lines if line[0] in " +"]
    return "\n".join(before), "\n".join(after), sum(line[0] == "+" for line in lines)


def run(script: str) -> None:
    torch.manual_seed(0)
    x, y = torch.rand(96, 1, 8, 8), torch.randint(0, 10, (96,))
    exec(compile(script, "README.md", "exec"), {"x": x, "loader": list(zip(x.split(32), y.split(32), strict=True))})


def test_script_in_at_most_five_changed_lines(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    before, after, changed = scripts()
    assert changed <= MOST_CHANGED
    losses, weights = [], []
    for script in (before, after):
        run(script)
        losses.append([float(line.split()[1]) for line in capsys.readouterr().out.splitlines()])
        weights.append(torch.load("net.pt", weights_only=True))
    assert len(losses[0]) == 3
    assert losses[0][-1] < losses[0][0]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    assert list(weights[0]) == list(weights[1])
    for name, value in weights[0].items():
        np.testing.assert_allclose(weights[1][name].numpy(), value.numpy(), rtol=1e-3, atol=1e-5, err_msg=name)
