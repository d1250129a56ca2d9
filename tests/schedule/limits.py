"""Other limits of the blocking of contractions, so that small problems take the ways of large ones."""

from __future__ import annotations

from typing import Any

import pytest

from pullback.schedule import group
from pullback.schedule.contraction.plan import blocking, choice, few_rows, lane_sums, tasks
from pullback.schedule.contraction.plan import k_rounds as rounds
from pullback.schedule.contraction.plan import packing as ways
from pullback.schedule.contraction.plan import split_k as long_sums
from pullback.schedule.contraction.plan import tails as cuts

MODULES = (group, blocking, ways, tasks, lane_sums, long_sums, few_rows, rounds, choice, cuts)


def limit(monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
    """Replace names in all modules that read them. What is known of a group already stays known: take a new one."""
    for name, value in values.items():
        having = [module for module in MODULES if hasattr(module, name)]
        assert having, f"no module of blocking has a {name}"
        for module in having:
            monkeypatch.setattr(module, name, value)
