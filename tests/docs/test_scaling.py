"""docs/scaling.md: its commands give the tables that it shows, and draw its pictures."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pullback.cli import app
from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs/scaling.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"```sh\npython -m pullback ([^`]*)```\n+```text\n([^`]*)```", PAGE)
DRAWN = re.findall(r"```sh\npython -m pullback ([^`]*--picture docs/(\S+)[^`]*)```", PAGE)


def test_it_shows_and_draws() -> None:
    assert len(SHOWN) >= 3 and len(DRAWN) == 3
    assert all(f"({picture})" in PAGE for _, picture in DRAWN)


@pytest.mark.parametrize(("command", "shown"), SHOWN)
def test_tables(command: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(app, shlex.split(command.replace("\\\n", " ")))
    assert result.exit_code == 0, result.output
    lines = [line.rstrip() for line in result.output.strip("\n").splitlines()]
    assert lines == [line.rstrip() for line in shown.strip("\n").splitlines()]


@pytest.mark.parametrize(("command", "picture"), DRAWN)
def test_pictures(command: str, picture: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    again = tmp_path / "again.svg"
    arguments = shlex.split(command.replace("\\\n", " ").replace(f"docs/{picture}", str(again)))
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert again.read_text() == (ROOT / "docs" / picture).read_text()
