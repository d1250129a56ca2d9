"""What docs/security.md says of texts is true, and said where people meet it."""

from __future__ import annotations

import re
from pathlib import Path

from typer.testing import CliRunner

import pullback
from pullback.cli import app

ROOT = Path(__file__).parents[2]


def test_a_text_is_evaluated(tmp_path: Path) -> None:
    page = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    pullback.script.from_source(text.replace("/tmp/hello", str(tmp_path / "hello")))
    assert (tmp_path / "hello").read_text() == "I was here"


def test_it_is_said_where_people_meet_it() -> None:
    assert "no sandbox" in (pullback.script.from_source.__doc__ or "")
    for command in ("show", "tune"):
        found = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
        assert "is run" in found
