"""The page of Keras's layers and operations is the table."""

from __future__ import annotations

import re

import pytest

from pullback.relax.frontend.keras import KERAS
from tests.docs.blocks import ROOT

PAGE = ROOT / "docs/frontends/keras.md"


def test_the_page_has_each_line_of_the_table():
    text = PAGE.read_text(encoding="utf-8")
    found = [c for c in KERAS if not c.is_own]
    converted = {c.name for c in found if c.function is not None}
    first, second = text.split("## Refused")
    names = set(re.findall(r"`((?:layers|ops)\.\w+)`", first))
    assert names - {"layers.X", "ops.X"} == converted
    for converter in found:
        if converter.function is None:
            assert f"| `{converter.name}` | {converter.reason} |" in second


def test_the_table_knows_all_public_layers():
    keras = pytest.importorskip("keras")
    known = {c.name for c in KERAS}
    public = {n for n, v in vars(keras.layers).items() if isinstance(v, type) and issubclass(v, keras.layers.Layer)}
    own = {vars(keras.layers)[n].__name__ for n in public}
    assert {n for n in own if f"layers.{n}" not in known} <= {"Layer", "InputLayer", "Wrapper"}
