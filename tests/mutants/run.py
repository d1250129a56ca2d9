"""A mutant's package in a folder of its own, and tests on it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 120.0  # in which some test must fail
_FOLDERS = ("pullback", "tests", "benchmarks", "docs", "examples")


@contextmanager
def house() -> Iterator[Path]:
    """A copy of the project, to be changed. Links would not do: pytest follows them to the package that they lie in."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name)
        for part in _FOLDERS:
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        for file in (f for f in ROOT.iterdir() if f.is_file()):
            shutil.copy(file, folder)
        yield folder


def caught(folder: Path, tests: Sequence[str], seconds: float = SECONDS) -> tuple[str, str]:
    """Whether the tests notice: ("killed", which test), ("killed", "took too long"), or ("survived", "")."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {
        "PULLBACK_CACHE_DIR": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(folder),
    }  # fmt: skip
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return "survived", f"no test failed within {seconds:.0f} s"
    if done.returncode == 0:
        return "survived", ""
    if done.returncode in (4, 5):
        raise RuntimeError(f"pytest ran no test of {' '.join(tests)}:\n{done.stdout}{done.stderr}")
    failed = [line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return "killed", failed[0] if failed else f"pytest exited with {done.returncode}"
