"""What holds for all tests: the option --update-golden, and which tests need PyTorch."""

from __future__ import annotations

import gc
import importlib.util
import os
from pathlib import Path

import pytest

os.environ.setdefault("PULLBACK_VERIFY", "1")  # every memory plan that a test makes is checked thoroughly

NEEDS_TORCH = "against_torch.py"  # the end of such a file's name


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew instead of comparing")


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("PULLBACK_REQUIRE_TORCH") and importlib.util.find_spec("torch") is None:
        raise pytest.UsageError("PULLBACK_REQUIRE_TORCH is set, but PyTorch is not installed")


def pytest_collection_finish() -> None:
    """Thousands of tests and PyTorch are no garbage: collections, of which some tests ask for many, pass them over."""
    gc.collect()
    gc.freeze()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Comparisons with live PyTorch are collected where it is installed; its recorded numbers are always checked."""
    missing = importlib.util.find_spec("torch") is None
    return True if missing and collection_path.name.endswith(NEEDS_TORCH) else None
