"""mkdocs.yml: the menu of the site has every page of docs/, and no other."""

from __future__ import annotations

import re

from tests.docs.blocks import ROOT

MENU = re.findall(r"^ +- .+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
ADDED = {"index.md", "contributing.md", "changelog.md"}


def test_the_menu_has_every_page() -> None:
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    listed = {page for page in MENU if not page.startswith("reference/")} - ADDED
    assert len(MENU) == len(set(MENU)) and listed == pages


def test_references_are_those_of_the_hook() -> None:
    hook = (ROOT / "docs/site/hooks.py").read_text(encoding="utf-8")
    made = set(re.findall(r'"(\w+)": "pullback', hook)) | {"trainer"}
    assert {page.removeprefix("reference/").removesuffix(".md") for page in MENU if "reference/" in page} == made
