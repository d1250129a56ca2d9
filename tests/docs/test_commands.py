"""docs/commands.md: its commands run on its files, and its table lists all commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from pullback.cli import app
from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs/commands.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_its_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for text in [*blocks("python"), *blocks("toml")]:
        Path(text.split()[1]).write_text(text)  # each begins with its name
    lines = [line for text in blocks("sh") for line in text.splitlines()]
    assert len(lines) == 5
    for line in lines:
        result = CliRunner().invoke(app, shlex.split(line.removeprefix("python -m pullback ")))
        assert result.exit_code == 0, result.output
    lengths = {p.parent.name: len(p.read_text().splitlines()) for p in tmp_path.glob("runs/*/history.csv")}
    assert lengths == {"digits": 1 + 2, "wide": 1 + 6}
    assert (tmp_path / "dist" / "digits.h").exists()


def test_its_table_has_all_commands() -> None:
    table = "".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    told = {name for text in re.findall(r"`([^`]+)`", table) for name in text.split()[:1] if not name.startswith("-")}
    assert told == set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
