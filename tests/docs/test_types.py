"""The README's program and those of the quick start have no type errors for who uses mypy."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.docs.blocks import ROOT, python_text


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_mypy_passes(page, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(python_text((ROOT / page).read_text(encoding="utf-8")), encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file=", f"--cache-dir={tmp_path}", "--follow-imports=silent"]
    done = subprocess.run([*command, str(program)], cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
