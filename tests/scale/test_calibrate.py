"""Links between ranks of this process. What is measured is judged by its sense, not by its size."""

from __future__ import annotations

import math

import pytest

from pullback.ir.errors import ArgumentError
from pullback.runtime.ranks import Alone
from pullback.scale import calibrate
from pullback.scale.network import Link, Network


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "RUNS", 2)
    monkeypatch.setattr(calibrate, "LARGE", 1 << 14)
    found = calibrate.calibrate_threads(2)
    assert found.ranks_per_node == 2 and found.link == Link(12.5e9, 1e-5)
    for value in (found.local.bandwidth, found.local.message, found.addition, found.copying):
        assert 0 < value < math.inf
    assert 0 <= found.local.latency < 1


def test_one_rank_has_no_link() -> None:
    with pytest.raises(ArgumentError, match="one rank has no link"):
        calibrate.calibrate(Alone(), Network(Link(1e9, 1e-5)))
