"""The machine's own limits, measured in the same run as the benchmarks: FMA rate and bandwidths (`peak.c`)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

SOURCE = Path(__file__).with_name("peak.c")
WRITTEN = {"read": 0.0, "triad": 1 / 3, "scale": 1 / 2, "write": 1.0}  # of the bytes that a stream moves


@dataclass(frozen=True)
class Peak:
    """What `threads` threads together reach: float32 multiply-adds, and streams over arrays of several sizes.

    ``bandwidth[level][stream]`` in GB/s: the levels are L2 (arrays of half of it for each thread), L3 (of half of it
    in all) and DRAM; for the streams see ``WRITTEN``. A cache of unknown size has no level.
    """

    threads: int
    gflops: float
    vector_bytes: int
    cache_bytes: dict[str, int]
    bandwidth: dict[str, dict[str, float]]

    @property
    def gigabytes_per_second(self) -> float:
        """Of the triad over arrays larger than any cache."""
        return self.bandwidth["DRAM"]["triad"]

    def floor_seconds(self, flops: float, read: int, written: int) -> float:
        """The roofline: max(FLOPs / peak, bytes / bandwidth of the stream that is like them)."""
        level, stream = stream_like(read, written, self.threads, self.cache_bytes)
        return 1e-9 * max(flops / self.gflops, (read + written) / self.bandwidth[level][stream])


def stream_like(read: int, written: int, threads: int, caches: Mapping[str, int]) -> tuple[str, str]:
    """The nearest level that holds so much data, an L2 cache for each thread or one L3, and the stream which writes
    about as much of what it moves."""
    share, second, third = written / max(1, read + written), caches.get("L2", 0) * threads, caches.get("L3", 0)
    holds = {"L2": second, "L3": third if third > 4 * second else 0}  # as peak.c has it
    level = next((level for level, size in holds.items() if 0 < read + written <= size), "DRAM")
    return level, min(WRITTEN, key=lambda name: abs(WRITTEN[name] - share))


def measure(*thread_counts: int) -> dict[int, Peak]:
    """Compile `peak.c` for this machine and run it once for each different thread count."""
    with tempfile.TemporaryDirectory(prefix="pullback-peak-") as folder:
        program = _compiled(Path(folder))
        return {threads: _run(program, threads) for threads in sorted(set(thread_counts))}


class Watch:
    """The limits at this moment, each measured in a millisecond or two by a process that waits for the question until
    this one ends."""

    def __init__(self, threads: int) -> None:
        with tempfile.TemporaryDirectory(prefix="pullback-peak-") as folder:
            command = [_compiled(Path(folder)), *_arguments(threads), "watch"]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.gflops()  # it runs, so its file may go

    def gflops(self) -> float:
        """The multiply-adds of all threads."""
        return self._rate("fma")

    def bandwidth(self, level: str, stream: str) -> float:
        """GB/s of a stream (``WRITTEN``) over arrays of a level (``Peak.bandwidth``)."""
        return self._rate(f"{level} {stream}")

    def _rate(self, question: str) -> float:
        self._process.stdin.write(question + "\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


def _compiled(folder: Path) -> Path:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise RuntimeError("measuring the machine's peak needs a C compiler: install gcc or clang, or set CC")
    program = folder / "peak"
    command = [compiler, "-O3", "-march=native", "-pthread", str(SOURCE), "-o", str(program)]
    subprocess.run(command, check=True, timeout=120)
    return program


def better(first: dict[int, Peak], second: dict[int, Peak]) -> dict[int, Peak]:
    """Of two measurements of the same limits the higher: whatever disturbs a measurement can only lower it."""
    return {threads: _higher(peak, second[threads]) for threads, peak in first.items()}


def raised(peaks: dict[int, Peak], threads: int, rates: Iterable[float]) -> dict[int, Peak]:
    """The limits, of which the rate of multiply-adds is no lower than these GFLOP/s, which as many threads reached in
    between: the machine may have been busy at the beginning and the end, and free meanwhile."""
    reached = replace(peaks[threads], gflops=max([peaks[threads].gflops, *rates]))
    return peaks | {threads: reached}


def _higher(a: Peak, b: Peak) -> Peak:
    bandwidth = {
        level: {name: max(rate, b.bandwidth[level][name]) for name, rate in streams.items()}
        for level, streams in a.bandwidth.items()
    }
    return replace(a, gflops=max(a.gflops, b.gflops), bandwidth=bandwidth)


def cache_bytes() -> dict[str, int]:
    """The sizes of the caches that the first processor sees, as Linux tells them."""
    sizes = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind = ((folder / name).read_text().strip() for name in ("level", "type"))
        if kind != "Instruction":
            size = (folder / "size").read_text().strip()
            sizes[f"L{level}"] = int(size.rstrip("KM")) * {"K": 1 << 10, "M": 1 << 20}.get(size[-1], 1)
    return sizes


def _arguments(threads: int) -> list[str]:
    caches = cache_bytes()
    return [str(n) for n in (threads, caches.get("L2", 0), caches.get("L3", 0))]


def _run(program: Path, threads: int) -> Peak:
    command = [program, *_arguments(threads)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    return Peak(threads, **json.loads(output), cache_bytes=cache_bytes())
