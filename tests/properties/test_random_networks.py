"""Random networks: a training step planned in several ways and run by several threads, beside the interpreter and,
where it is installed, PyTorch. Many more: ``python -m tests.properties networks``."""

from __future__ import annotations

import pytest

from tests.properties.checks import check_network, installed_torch

FOUND = (5036,)  # what was wrong once


@pytest.mark.parametrize("seed", [*range(20), *FOUND])
def test_random_network(seed: int) -> None:
    check_network(seed, installed_torch())
