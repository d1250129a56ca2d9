"""Functions that no entry function reaches are removed."""

from __future__ import annotations

import pytest

from pullback.ir.errors import NameNotFound
from pullback.relay.transform import RemoveUnusedFunctions
from tests.relay.texts import module

TEXT = """
def @deep(%x: float32) -> float32 { exp(%x) }
def @used(%x: float32) -> float32 { @deep(%x) }
def @even(%x: float32) -> float32 { @odd(%x) }
def @odd(%x: float32) -> float32 { @even(%x) }
def @handed(%x: float32) -> float32 { %x }
def @main(%x: float32) -> float32 { let %f = @handed; %f(@used(%x)) }
"""


@pytest.mark.parametrize(
    ("entries", "kept"),
    [
        (None, {"main", "used", "deep", "handed"}),
        (["main"], {"main", "used", "deep", "handed"}),
        (["even"], {"even", "odd"}),
        (("used", "odd"), {"used", "deep", "even", "odd"}),
    ],
)
def test_what_entries_reach_stays(entries: list[str] | None, kept: set[str]) -> None:
    before = module(TEXT)
    assert set(RemoveUnusedFunctions(entries)(before).functions) == kept
    assert len(before) == 6


def test_entries_that_do_not_exist() -> None:
    with pytest.raises(NameNotFound, match="no function 'train'"):
        RemoveUnusedFunctions(["train"])(module(TEXT))
