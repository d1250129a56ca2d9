"""What can be tried of docs/map.md: its programs run, its paths exist, its table of rooms is the one that is tested.

Links and the length of lines are checked for all documents.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, python_text
from tests.test_layers import ROOMS

MAP = ROOT / "docs" / "map.md"
DOCUMENTS = sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
GENERATED = {"docs/ops.md", "docs/performance.md", *(d for d in DOCUMENTS if d.startswith("docs/frontends/"))}


def test_programs_run(tmp_path):
    """In a process of their own, because they define an op."""
    program = tmp_path / "map.py"
    program.write_text(python_text(MAP.read_text(encoding="utf-8")), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_table_of_rooms_is_the_tested_one():
    rows = re.findall(r"^\| (`.*?) \|", MAP.read_text(encoding="utf-8"), re.MULTILINE)
    rooms = [tuple(_module(path) for path in re.findall(r"`([^`]+)`", row)) for row in rows]
    assert rooms == list(ROOMS)


def _module(path: str) -> str:
    parts = ["pullback", *path.removesuffix(".py").strip("/").split("/")]
    return ".".join(p for p in parts if p != "__init__")


def test_paths_exist():
    """Every file and folder that the page names, inside the section of its room or from the top."""
    room = ""
    for line in MAP.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            name = line.lstrip("# ")
            room = name if (ROOT / "pullback" / name).is_dir() else ""
        for path in re.findall(r"`([\w/]+(?:\.(?:py|c|h)|/))`", line):
            places = [ROOT / path, *(ROOT / "pullback" / room / path for room in {room, "", *_rooms()})]
            assert any(place.exists() for place in places), f"{path} does not exist ({line})"


def _rooms() -> list[str]:
    return [module.removeprefix("pullback").strip(".").replace(".", "/") for room in ROOMS for module in room]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name):
    path = ROOT / name
    text = re.sub(r"^ *```.*?^ *```$|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)]*)\)", text):
        if target.startswith(("https://", "http://")):
            continue
        found = path.parent / target if target else path
        assert found.exists(), target
        assert not anchor or anchor in _headings(found), f"{target}#{anchor}"


def _headings(path: Path) -> set[str]:
    text = re.sub(r"^ *```.*?^ *```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return {_anchor(h) for h in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("name", sorted({*DOCUMENTS} - GENERATED))
def test_lines_are_short(name):
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    assert [n for n, line in enumerate(lines, 1) if len(line) > 120 and line[:1] != "|"] == []
