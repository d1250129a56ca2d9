"""A plugin of pytest: the arguments ``target`` and ``dev`` of tests are the targets of this machine.

pytest_plugins = ["pullback.testing.plugin"]  # in conftest.py
"""

from __future__ import annotations

from typing import Any

import pytest

from pullback.runtime import Device, device
from pullback.testing.targets import TARGETS


@pytest.fixture(params=TARGETS)
def target(request: Any) -> str:
    """A target's name."""
    return request.param


@pytest.fixture
def dev(target: str) -> Device:
    """The target's device."""
    return device(target)
