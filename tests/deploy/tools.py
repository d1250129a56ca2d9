"""Programs that some tests need and not everybody has: where one is missing, they are skipped, or fail if
PULLBACK_REQUIRE_TOOLS is set."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cross.targets import relaxed_flags


def _missing(what: str) -> None:
    if os.environ.get("PULLBACK_REQUIRE_TOOLS"):
        pytest.fail(f"PULLBACK_REQUIRE_TOOLS is set, but {what}")
    pytest.skip(what)


def need_zig() -> None:
    """The C compiler of other platforms."""
    if not importlib.util.find_spec("ziglang") and not shutil.which("zig"):
        _missing("zig is not installed: pip install ziglang")


def need_program(*names: str) -> str:
    """The path of a program that is installed under one of these names."""
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        _missing(f"{names[0]} is not installed")
    return str(found)


def node(script: str, folder: Path, timeout: float = 120) -> str:
    """What a script, an ES module in this folder, prints: with relaxed SIMD, whatever node's version."""
    path = folder / "script.mjs"
    path.write_text(script)
    program = need_program("node", "nodejs")
    done = subprocess.run(
        [program, *relaxed_flags(program), str(path)],
        cwd=folder, capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
