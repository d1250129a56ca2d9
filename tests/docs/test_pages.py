"""The programs of the quick start, the phrase book and the how-tos run."""

from __future__ import annotations

import os

import pytest

from tests.docs.blocks import ROOT, run_document

ALONE = [ROOT / f"docs/{name}.md" for name in ("quickstart", "phrasebook", "relay")]
PAGES = sorted([*ALONE, *(ROOT / "docs/howto").glob("*.md")])

NEEDS = {"from_onnx": "onnx", "from_pytorch": "torch", "torch_compile": "torch", "from_keras": "keras"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(page, tmp_path, monkeypatch):
    if page.stem in NEEDS:
        monkeypatch.setenv("KERAS_BACKEND", os.environ.get("KERAS_BACKEND", "jax"))
        pytest.importorskip(NEEDS[page.stem])
    monkeypatch.setenv("PULLBACK_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    run_document(page, tmp_path)


def test_the_quick_start_lists_all_how_tos():
    names = {page.name for page in PAGES if page.parent.name == "howto"}
    text = (ROOT / "docs/quickstart.md").read_text(encoding="utf-8")
    assert len(names) >= 18
    assert all(f"howto/{name}" in text for name in names)
