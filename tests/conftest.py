"""What holds for all tests: the options, which of them need PyTorch, and the processor time that they take."""

from __future__ import annotations

import gc
import importlib.util
import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

from tests import quick

os.environ.setdefault("PULLBACK_VERIFY", "1")  # every memory plan that a test makes is checked thoroughly

NEEDS_TORCH = "against_torch.py"  # the end of such a file's name


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew instead of comparing")
    parser.addoption("--quick", action="store_true", help="run the part of the suite that tests/quick.py chooses")
    parser.addoption("--update-costs", action="store_true", help="write tests/costs.txt anew, by which it chooses")


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("PULLBACK_REQUIRE_TORCH") and importlib.util.find_spec("torch") is None:
        raise pytest.UsageError("PULLBACK_REQUIRE_TORCH is set, but PyTorch is not installed")
    if config.getoption("--quick") and config.getoption("--update-costs"):
        raise pytest.UsageError("--update-costs measures all cases of a function: it goes without --quick")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        chosen = quick.choose(items, quick.read_costs())
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]


def pytest_collection_finish() -> None:
    """Thousands of tests and PyTorch are no garbage: collections, of which some tests ask for many, pass them over."""
    gc.collect()
    gc.freeze()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Comparisons with live PyTorch are collected where it is installed; its recorded numbers are always checked."""
    missing = importlib.util.find_spec("torch") is None
    return True if missing and collection_path.name.endswith(NEEDS_TORCH) else None


_seconds: dict[str, float] = defaultdict(float)  # processor time of each test
_clock = 0.0


def _processor_time() -> float:
    """Of this process and of the children that it has waited for."""
    return sum(os.times()[:4])


def pytest_runtest_logstart() -> None:
    global _clock
    _clock = _processor_time()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A report carries the processor time since the one before, from the worker to the process that sums up."""
    global _clock
    report = yield
    now = _processor_time()
    report.seconds, _clock = now - _clock, now
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += getattr(report, "seconds", 0.0)  # a worker that died has told none


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("--update-costs"):
        quick.write_costs(_seconds)
    if config.getoption("--quick") and _seconds:
        terminalreporter.write_line(quick.summary(_seconds, quick.read_costs()))
