"""A few random programs with branches and loops: `python -m tests.relax.check_programs` runs many."""

from __future__ import annotations

import pytest

from tests.relax.check_programs import check


@pytest.mark.parametrize("seed", range(10_000, 10_008))
def test_random_programs(seed):
    check(seed, depth=2)


@pytest.mark.parametrize("seed", range(20_000, 20_003))
def test_deeper_random_programs(seed):
    check(seed, depth=3, second=False)
