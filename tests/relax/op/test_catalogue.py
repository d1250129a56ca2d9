"""The catalogue: its page is up to date, and each op of the reference system is there or has a reason why not."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from pullback.cli import app
from pullback.ir.op import Op
from pullback.relax.op import catalogue

PAGE = Path(__file__).resolve().parents[3] / "docs" / "ops.md"
REFERENCE = Path(__file__).with_name("reference_ops.txt")


def test_page_is_what_the_registry_says(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        PAGE.write_text(catalogue.markdown())
    assert PAGE.read_text() == catalogue.markdown(), "run `python -m pullback ops --markdown > docs/ops.md`"


def test_every_op_of_the_reference_is_there_or_has_a_reason() -> None:
    lines = [line for line in REFERENCE.read_text().splitlines() if line and not line.startswith("#")]
    names = [line.partition(":")[0] for line in lines]
    assert len(set(names)) == len(names) == 230
    missing = [n for n, line in zip(names, lines, strict=True) if ":" not in line and Op.find(f"relax.{n}") is None]
    needless = [n for n, line in zip(names, lines, strict=True) if ":" in line and Op.find(f"relax.{n}") is not None]
    assert not missing and not needless


def test_there_are_as_many_ops_as_promised() -> None:
    assert len(catalogue.entries()) >= 230


def test_the_command_prints_them() -> None:
    printed = CliRunner().invoke(app, ["ops"]).output.splitlines()
    assert printed[-1] == catalogue.summary() and len(printed) == len(catalogue.entries()) + 1
    assert any(line.startswith("nn.softmax ") for line in printed)
    assert CliRunner().invoke(app, ["ops", "--summary"]).output == catalogue.summary() + "\n"


def test_other_names() -> None:
    assert Op.get("floor_mod") is Op.get("mod") and Op.get("relax.log_add_exp") is Op.get("logaddexp")
