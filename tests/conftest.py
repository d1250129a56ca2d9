"""What holds for all tests: the option --update-golden, and which tests need PyTorch."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

NEED_TORCH = ("test_against_torch.py",)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew instead of comparing")


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("PULLBACK_REQUIRE_TORCH") and importlib.util.find_spec("torch") is None:
        raise pytest.UsageError("PULLBACK_REQUIRE_TORCH is set, but PyTorch is not installed")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Comparisons with live PyTorch are collected where it is installed; its recorded numbers are always checked."""
    return True if collection_path.name in NEED_TORCH and importlib.util.find_spec("torch") is None else None
