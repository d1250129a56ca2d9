"""What tests of all rooms share."""

from __future__ import annotations

from typing import Any

from pullback.ir import IRModule, assert_structural_equal, structural_hash
from pullback.script import from_source


def round_trip(obj: Any) -> str:
    """Print a module or function, read the text back, and assert that the structure is the same; returns the text."""
    text = obj.script()
    again = from_source(text)
    assert type(again) is type(obj)
    assert_structural_equal(obj, again)
    assert structural_hash(obj) == structural_hash(again)
    if isinstance(obj, IRModule):
        assert list(obj) == list(again)
    return text
