"""The programs of docs/deploy-web.md run, in Python and in node."""

from __future__ import annotations

import re

import numpy as np

from tests.deploy.tools import need_program, need_zig, node
from tests.docs.blocks import ROOT, run_document

PAGE = ROOT / "docs/deploy-web.md"


def test_its_programs_run(tmp_path, monkeypatch):
    need_program("node", "nodejs")
    need_zig()
    monkeypatch.chdir(tmp_path)
    module = run_document(PAGE, tmp_path)
    scripts = re.findall(r"```js\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    first, second = (node(script, tmp_path) for script in scripts)
    assert re.findall(r"^epoch (\d): loss", first, re.MULTILINE) == list("12345")
    assert "input must have 16 rows of 64 elements, not 1797" in first
    assert float(second.split()[0]) > 0 and second.split()[1] == "1"
    module.trainer.load("browser.safetensors")
    assert module.trainer.evaluate(module.x, module.y).accuracy > 0.9
    assert node('await import("./dist/example/main.mjs");', tmp_path).count("loss") == 10
    assert np.isclose(module.trainer.hyperparameters["lr"], 1e-3)
