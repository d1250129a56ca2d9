"""Real launchers of MPI, for tests that start ranks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pullback.command import mpirun
from pullback.command.mpirun import Launcher
from pullback.ir.errors import UserError

ROOT = Path(__file__).resolve().parents[1]


def installed() -> Launcher:
    """The launcher that ranks are started with; the test is skipped where there is none."""
    if os.name != "posix":
        pytest.skip("ranks are started on POSIX systems")
    try:
        return mpirun.find()
    except UserError as error:
        pytest.skip(error.message)


def environment(**more: str) -> dict[str, str]:
    """That of a program whose ranks import this package, have one thread each, and give up soon when they wait."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return os.environ | {"PYTHONPATH": path, "PULLBACK_NUM_THREADS": "1", "PULLBACK_RANKS_TIMEOUT": "60"} | more


def python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]
