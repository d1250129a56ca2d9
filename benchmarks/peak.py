"""The machine's own limits, measured in the same run as the benchmarks: FMA rate and memory bandwidth (`peak.c`)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("peak.c")


@dataclass(frozen=True)
class Peak:
    """What `threads` threads together reach: float32 multiply-adds, and a triad over arrays larger than any cache."""

    threads: int
    gflops: float
    gigabytes_per_second: float
    vector_bytes: int


def measure(*thread_counts: int) -> dict[int, Peak]:
    """Compile `peak.c` for this machine and run it once for each different thread count."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise RuntimeError("measuring the machine's peak needs a C compiler: install gcc or clang, or set CC")
    with tempfile.TemporaryDirectory(prefix="pullback-peak-") as folder:
        program = Path(folder) / "peak"
        command = [compiler, "-O3", "-march=native", "-pthread", str(SOURCE), "-o", str(program)]
        subprocess.run(command, check=True, timeout=120)
        return {threads: _run(program, threads) for threads in sorted(set(thread_counts))}


def better(first: dict[int, Peak], second: dict[int, Peak]) -> dict[int, Peak]:
    """Of two measurements of the same limits the higher: whatever disturbs a measurement can only lower it."""
    return {
        threads: Peak(
            threads,
            max(peak.gflops, second[threads].gflops),
            max(peak.gigabytes_per_second, second[threads].gigabytes_per_second),
            peak.vector_bytes,
        )
        for threads, peak in first.items()
    }


def _run(program: Path, threads: int) -> Peak:
    output = subprocess.run([program, str(threads)], check=True, capture_output=True, text=True, timeout=120).stdout
    return Peak(threads, **json.loads(output))
