"""CONTRIBUTING.md: its recipes, followed in a copy of the package, pass the tests that they name."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^## (Add .*?)\n(.*?)(?=^## )", PAGE, re.DOTALL | re.MULTILINE))
BLOCK = re.compile(r"^( *)```(python|sh)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
PLACE = re.compile(r"# (\S+) \((new|at the end)\)\n")
NEEDS = {"Add an importer's rule": "torch"}


def blocks(recipe: str) -> list[tuple[str, str]]:
    return [(match[2], textwrap.dedent(match[3])) for match in BLOCK.finditer(recipe)]


def follow(recipe: str, folder: Path) -> list[str]:
    """Write the recipe's files into a copy of the package, and run its commands; returns what they printed."""
    printed = []
    tools = folder / "tools"
    tools.mkdir()
    for name, command in {"python": f'"{sys.executable}"', "pytest": f'"{sys.executable}" -m pytest -q'}.items():
        (tools / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (tools / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(folder)}
    for kind, text in blocks(recipe):
        if kind == "sh":
            command = ["bash", "-euo", "pipefail", "-c", text]
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
            printed.append(done.stdout)
            continue
        place = PLACE.match(text)
        assert place is not None, f"a block that does not say where it goes:\n{text}"
        path, text = folder / place[1], text[place.end() :]
        assert path.exists() == (place[2] == "at the end"), path
        path.write_text(path.read_text(encoding="utf-8") + "\n\n" + text if path.exists() else text, encoding="utf-8")
    return printed


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", "*.json", "*.svg", "*.png")
    for name in ("pullback", "tests", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("title", RECIPES)
def test_recipes(title: str, copy: Path) -> None:
    if title in NEEDS and importlib.util.find_spec(NEEDS[title]) is None:
        pytest.skip(f"there is no {NEEDS[title]}")
    if title == "Add a schedule":  # step 2 is told in words
        path = copy / "pullback/schedule/choose.py"
        text = path.read_text(encoding="utf-8").replace("Random, Elementwise", "Random, Single, Elementwise")
        path.write_text(
            text.replace("\nSchedule = ", "\nfrom pullback.schedule.single import Single\n\nSchedule = Single | ")
        )
    ran = "".join(follow(RECIPES[title], copy))
    assert re.search(r"\d+ passed", ran) and "failed" not in ran
    written = [match[1] for match in PLACE.finditer(RECIPES[title])]
    for check in (["check"], ["format", "--diff"]):
        command = [sys.executable, "-m", "ruff", *check, *written]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_there_are_four_recipes() -> None:
    assert [title.split()[-1] for title in RECIPES] == ["op", "pass", "schedule", "rule"]
    assert all({"python", "sh"} <= {kind for kind, _ in blocks(recipe)} for recipe in RECIPES.values())


def test_what_it_names_exists() -> None:
    """Files, but for those that its recipes add, and targets of make."""
    added = {match[1] for match in PLACE.finditer(PAGE) if match[2] == "new"}
    prose = re.sub(r"^ *```.*?^ *```$", "", PAGE, flags=re.DOTALL | re.MULTILINE)
    paths = {p for p in re.findall(r"`((?:pullback|tests|docs)/[\w./]+)`", prose) if p not in added}
    paths |= set(re.findall(r"\]\(([^)#:]+)", prose))
    assert len(paths) > 15 and not {path for path in paths if not (ROOT / path).exists()}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {
        t for line in re.findall(r"\bmake ((?:[a-z-]+ ?)+)(?=`|$| +#)", PAGE, re.MULTILINE) for t in line.split()
    }
    assert {"lint", "test", "test-all", "docs", "venv", "wheels"} <= targets
    assert not {t for t in targets if not re.search(rf"^{t}:", makefile, re.MULTILINE)}


def test_hooks_are_the_commands_of_make_lint() -> None:
    hooks = re.findall(r"entry: \.venv/bin/python -m (.*)", (ROOT / ".pre-commit-config.yaml").read_text())
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert lint is not None
    commands = [line.removeprefix("\t$(PY) -m ") for line in lint[1].splitlines()]
    assert [h.removesuffix(" --force-exclude") for h in hooks] == [c.removesuffix(" --check") for c in commands]
