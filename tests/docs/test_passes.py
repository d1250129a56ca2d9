"""docs/howto/passes.md: its commands run on its files, and print what it shows.

`pytest --update-golden` writes what they print into the page.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pullback.cli import app
from tests.docs.blocks import ROOT

PAGE = ROOT / "docs/howto/passes.md"
BLOCK = re.compile(r"```(python|sh|sh fails|text)\n(.*?)```", re.DOTALL)
TARGET = "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3"  # the page is the same on every machine


def test_its_commands_print_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    text, printed = PAGE.read_text(encoding="utf-8"), ""

    def rerun(block: re.Match[str]) -> str:
        nonlocal printed
        kind, content = block.groups()
        if kind == "python":
            Path(content.split()[1]).write_text(content)  # it begins with its name
        elif kind == "text":
            return f"```text\n{printed}```"
        else:
            printed = "".join(output(line, kind.endswith("fails")) for line in content.splitlines())
        return block[0]

    found = BLOCK.sub(rerun, text)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(found, encoding="utf-8")
    assert found == PAGE.read_text(encoding="utf-8")
    assert (text.count("```sh"), text.count("```text")) == (7, 5)


def output(line: str, fails: bool) -> str:
    """What a command prints."""
    arguments = shlex.split(line.removeprefix("python -m pullback "))
    target = ["--target", TARGET] if "--after" in arguments or "--before" in arguments else []
    result = CliRunner().invoke(app, [*arguments, *target])
    assert result.exit_code == int(fails), result.output
    return result.output
