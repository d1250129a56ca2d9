"""Some wrong inputs of each family: ``python -m tests.hostile`` has new ones, and tells how to repeat a case."""

from __future__ import annotations

import random
from importlib import import_module
from pathlib import Path

import pytest

from tests.hostile.__main__ import FAMILIES, Found, run

COUNTS = {"arrays": 900, "arguments": 700, "checkpoints": 500, "texts": 250, "caches": 16, "moved": 6}


@pytest.mark.parametrize("family", COUNTS)
def test_some_of_each_family(family: str, tmp_path: Path) -> None:
    case = import_module(f"tests.hostile.{family}").case
    for seed in range(COUNTS[family]):
        try:
            case(random.Random(f"{family} {seed}"), tmp_path)
        except Exception as error:
            pytest.fail(f"{error}\npython -m tests.hostile --family {family} --seed {seed} --count 1")


def test_a_finding_says_how_to_repeat_it() -> None:
    found = Found("texts", 7, "it failed")
    assert found.command == "python -m tests.hostile --family texts --seed 7 --count 1"
    assert set(COUNTS) < set(FAMILIES)


def test_crashes_and_hangs_are_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.hostile import __main__ as runner

    (tmp_path / "crashing.py").write_text(
        "import ctypes\ndef case(r, folder):\n    if r.random() >= 0: ctypes.string_at(0)\n"
    )
    (tmp_path / "hanging.py").write_text("import time\ndef case(r, folder): time.sleep(60)\n")
    monkeypatch.setattr(runner, "SECONDS_OF_A_CASE", 15.0)
    monkeypatch.setenv("TESTS_HOSTILE_FOLDER", str(tmp_path))
    crashed = [f for f in run("crashing", 3, 2) if isinstance(f, Found)]
    assert [(f.seed, f.problem) for f in crashed] == [(3, "the process ended with status -11")]
    monkeypatch.setattr(runner, "SECONDS_OF_A_CASE", 5.0)
    hung = [f for f in run("hanging", 4, 2) if isinstance(f, Found)]
    assert [(f.seed, f.problem) for f in hung] == [(4, "hangs: more than 5 seconds")]
