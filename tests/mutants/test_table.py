"""The table is true of the sources of today: each change is of a text that stands there once, and gives a program."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.changes import changes, parses
from tests.mutants.run import ROOT, caught, house
from tests.mutants.table import TABLE, Mutant

ROOMS = (
    *("ir", "runtime", "tir", "te", "schedule", "codegen", "script", "driver", "demo"),
    *("relax", "relax/op", "relax/transform", "relax/training"),
)

PROGRAM = '''def f(a, b):
    """Less than 3."""
    if a < b and not a:
        raise ValueError("no 4")
    return min(a + 1, b)
'''


@pytest.mark.parametrize("mutant", TABLE, ids=str)
def test_it_changes_a_program_into_another(mutant: Mutant) -> None:
    text = (ROOT / "pullback" / mutant.file).read_text()
    changed = mutant.applied(text)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))
    for path in mutant.tests.partition(" -k ")[0].split():
        assert (ROOT / path).exists()


def test_all_rooms_have_mutants() -> None:
    missing = set(ROOMS) - {m.room for m in TABLE}
    assert not missing
    assert len(TABLE) >= 60


def test_changes_are_drawn_from_what_is_computed() -> None:
    text = PROGRAM
    shown = {c.shown(text).partition("   →   ")[2] for c in changes("f.py", text) if parses(c.applied(text))}
    assert shown >= {
        "if a <= b and not a:", "if a < b or not a:", "if a < b and a:", "if False:", "pass", "return min(a - 1, b)",
        "return min(a + 2, b)", "return max(a + 1, b)",
    }  # fmt: skip
    assert not any("less" in s.lower() or "5" in s for s in shown)


def test_a_mutant_is_killed_and_the_package_itself_survives() -> None:
    with house() as folder:
        assert caught(folder, ["tests/tir/test_polynomial.py"])[0] == "survived"
        file = folder / "pullback/tir/polynomial.py"
        file.write_text(file.read_text().replace("return a == b", "return a != b", 1))
        assert caught(folder, ["tests/tir/test_polynomial.py"])[0] == "killed"
