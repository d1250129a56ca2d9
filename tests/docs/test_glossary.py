"""docs/glossary.md: every word is explained once, and stands where it says."""

from __future__ import annotations

import re

from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
WORDS = [word for entry in re.findall(r"^\*\*([^*]+)\*\* · ", PAGE, re.MULTILINE) for word in entry.split(", ")]
ASKED = (
    "Packing", "K-blocking", "Split-K", "Tail", "Prefetch", "Epilogue", "thread-private packing", "Vector axis",
    "Register tile", "Spill and reload", "Non-temporal store", "Transposed store", "Accumulator", "Donation",
    "Struct info", "Legalize",
)  # fmt: skip


def test_it_has_the_fields_words() -> None:
    assert len(WORDS) == len({word.lower() for word in WORDS}) > 50
    assert not [word for word in ASKED if word not in WORDS and f"*{word}*" not in PAGE]


def test_its_paths_exist() -> None:
    paths = re.findall(r"`([\w/]+(?:\.py|/))`", PAGE)
    assert len(paths) > 40 and not [path for path in paths if not (ROOT / "pullback" / path).exists()]
