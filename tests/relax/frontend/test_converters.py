"""Tables of conversions as pages and lists."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from pullback.cli import app
from pullback.relax.frontend import converters
from tests.docs.blocks import ROOT

PAGE = ROOT / "docs/frontends/torch.md"


def test_the_page_of_pytorch_is_current(request: pytest.FixtureRequest) -> None:
    result = CliRunner().invoke(app, ["converters", "torch", "--markdown"])
    assert result.exit_code == 0
    if request.config.getoption("--update-golden"):
        PAGE.write_text(result.output, encoding="utf-8")
    hint = "write it anew: python -m pullback converters torch --markdown > docs/frontends/torch.md"
    assert result.output == PAGE.read_text(encoding="utf-8"), hint


def test_the_list_has_a_line_for_each_operator() -> None:
    result = CliRunner().invoke(app, ["converters", "torch"])
    *lines, summary = result.output.splitlines()
    table = converters.table_of("torch")
    assert [line.split()[0] for line in lines] == [c.name for c in table]
    assert any(line.split() == ["aten.add", "converted"] for line in lines)
    assert any(line.endswith("there are no complex numbers here") for line in lines)
    assert summary == converters.summary(table)


def test_an_unknown_source_is_said_in_one_line() -> None:
    result = CliRunner().invoke(app, ["converters", "pytorch"])
    assert result.exit_code == 1
    assert "there is no source 'pytorch'" in result.output
