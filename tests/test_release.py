"""The version stands in one place, and the changelog and the tags agree with it."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

import pullback
from pullback.ir.deprecation import version_number

ROOT = Path(__file__).resolve().parent.parent
HEADINGS = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def tags(*which: str) -> list[str]:
    """Tags of versions, without the v."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no checkout of git")
    done = subprocess.run(["git", "tag", "--list", "v*", *which], cwd=ROOT, capture_output=True, text=True, check=True)
    return [tag.removeprefix("v") for tag in done.stdout.split()]


def test_the_changelog_ends_in_this_version() -> None:
    assert HEADINGS[0] == ("Unreleased", "")
    assert HEADINGS[1][0] == pullback.__version__
    assert all(date for _, date in HEADINGS[1:])
    numbers = [version_number(version) for version, _ in HEADINGS[1:]]
    assert numbers == sorted(set(numbers), reverse=True)
    assert [date for _, date in HEADINGS[1:]] == sorted((date for _, date in HEADINGS[1:]), reverse=True)


def test_the_project_has_no_version_of_its_own() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert not re.search(r'^version = "', project, re.MULTILINE)
    assert 'version = {attr = "pullback.version.__version__"}' in project
    assert metadata.version("pullback") == pullback.__version__


def test_tags_are_versions_of_the_changelog() -> None:
    assert set(tags()) <= {version for version, _ in HEADINGS[1:]}


def test_a_tag_here_is_this_version() -> None:
    assert set(tags("--points-at", "HEAD")) <= {pullback.__version__}
