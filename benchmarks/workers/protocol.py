"""What every worker process does: import its library, build its cases, and run a round when the parent says so.

Commands come as JSON lines on standard input, answers go as JSON lines to the original standard output (prints of the
libraries go to standard error); ranks of a job have a socket for both (`benchmarks/jobs.py`). Between two rounds a
worker is blocked on the pipe; it reports how much processor time it used nevertheless, so that a library whose threads
keep spinning is seen.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np

Step = Callable[[], float | None]
"""One synchronised step: it returns the loss (or None where there is none) as a Python number."""
RECORDED_STEPS = 10
SOCKET = "BENCH_SOCKET"  # the variable by which ranks of a job find who started them


class Timed:
    """A case that times its own work: ``seconds()`` runs it once. Of its result, two norms are compared between sides:
    the second weighs the elements by their place."""

    def __init__(self, seconds: Callable[[], float], result: np.ndarray) -> None:
        self.seconds = seconds
        self.norms = [float(np.linalg.norm(r)) for r in (result, result.ravel() * np.linspace(0, 1, result.size))]


Cases = dict[str, "Step | Timed | str"]
"""Cases by name; a text says why a case cannot be run."""


def chosen_cases(suite: str, first: str, last: str, timed: Callable[[Any], Timed]) -> Cases:
    """Some kernels of a suite."""
    from benchmarks.kernels.suites import SUITES

    return told(SUITES[suite]()[int(first) : int(last)], timed)


def told(chosen: Iterable[Any], timed: Callable[[Any], Timed | str]) -> Cases:
    """These cases, timed. One that this side cannot compute is told, and does not stop the others."""
    cases: Cases = {}
    for case in chosen:
        try:
            cases[case.label] = timed(case)
        except Exception as error:
            cases[case.label] = f"{type(error).__name__}: {error}"
    return cases


def serve(
    load: Callable[[], dict[str, str]],
    prepare: Callable[..., Cases],
    draw: Callable[..., object] = lambda *arguments: None,
    about: Callable[[], dict[str, Any]] = dict,
    tell: Callable[[], dict[str, Any]] = dict,
) -> None:
    """Answer the parent's commands until it closes the pipe.

    `load()` imports the library and returns versions; `draw(*arguments)` draws values, which counts neither as the
    side's time nor as its memory; `prepare(*arguments)` builds and compiles the named cases; `about()` says what else
    the parent's table has of the side that was built, `tell()` what it has of it after all rounds: that may take time
    and memory.
    """
    commands, answers = _channel()
    threads, arguments = int(sys.argv[1]), sys.argv[2:]
    _use_processors(threads)
    versions = load()
    draw(*arguments)
    start_watching_memory()
    baseline = high_water_bytes()
    print(json.dumps({"versions": versions}), file=answers)

    cases: Cases = {}
    idle_since, idle_seconds = time.process_time(), 0.0
    for line in commands:
        idle_seconds += time.process_time() - idle_since
        command = json.loads(line)
        if command["do"] == "build":
            cases, answer = _build(prepare, arguments)
            answer["about"] = about()
        elif command["do"] == "tell":
            answer = {"about": tell()}
        else:
            answer = _round(cases[command["case"]], command["seconds"], command.get("steps"))
            answer |= {"memory_bytes": high_water_bytes() - baseline, "idle_processor_seconds": idle_seconds}
        print(json.dumps(answer), file=answers)
        time.sleep(0.01)  # let the library's threads park before idling is watched
        idle_since = time.process_time()


def _channel() -> tuple[Iterable[str], IO[str]]:
    """Where commands come from, and where answers go. What else is printed goes to standard error."""
    if SOCKET in os.environ:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(os.environ[SOCKET])
        channel = connection.makefile("r"), os.fdopen(os.dup(connection.fileno()), "w", buffering=1)
    else:
        channel = sys.stdin, os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return channel


def draw_model(name: str, *_: str) -> None:
    """The data and initial values of a model."""
    from benchmarks.models import MODELS

    _ = MODELS[name].drawn


def versions_of(*packages: str) -> dict[str, str]:
    """The installed versions of some distributions."""
    return {package: importlib.metadata.version(package) for package in packages}


def need(*packages: str) -> None:
    """Raise an ImportError with the command that installs these (`NAME==VERSION`), where one of them is missing."""
    missing = [p for p in packages if not _installed(p.partition("==")[0])]
    if missing:
        names = " and ".join(p.partition("==")[0] for p in missing)
        raise ImportError(f"{sys.executable} lacks {names}: pip install {' '.join(packages)}")


def _installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def mapped_bytes(package: str) -> int:
    """How large the shared libraries of an installed Python package are that this process has mapped, as stripped
    files."""
    spec = importlib.util.find_spec(package)
    folder = Path(next(iter(spec.submodule_search_locations))).resolve()
    lines = (line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines())
    mapped = {Path(line[5]) for line in lines if len(line) == 6 and line[5].startswith("/")}
    return sum(_stripped_bytes(file) for file in mapped if folder in file.parents and ".so" in file.name)


def _stripped_bytes(file: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="pullback-bench-") as folder:
        stripped = Path(folder) / file.name
        subprocess.run(["strip", "-o", str(stripped), str(file)], check=True, capture_output=True)
        return stripped.stat().st_size


def high_water_bytes() -> int:
    """The process's peak resident memory (VmHWM)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM: peak memory is measured on Linux only")


def start_watching_memory() -> None:
    """Set the high-water mark to what is in use now, so that a peak before, as during the imports, hides nothing."""
    Path("/proc/self/clear_refs").write_text("5")


def _use_processors(threads: int) -> None:
    """Restrict the process to as many processors as it may use threads: every library sizes its pool by them."""
    allowed = sorted(os.sched_getaffinity(0))
    if threads > len(allowed):
        raise RuntimeError(f"{threads} threads were asked for, but only {len(allowed)} processors may be used")
    os.sched_setaffinity(0, allowed[:threads])


def _build(prepare: Callable[..., Cases], arguments: list[str]) -> tuple[Cases, dict[str, Any]]:
    """Build the cases and take ten steps of each; the time to the end of the very first one is the compile time."""
    started = time.perf_counter()
    cases = prepare(*arguments)
    first_seconds: float | None = None
    recorded, failures = {}, {}
    for name, case in cases.items():
        if isinstance(case, str):
            failures[name] = case
        elif isinstance(case, Timed):
            recorded[name] = case.norms
        else:
            results = [case()]
            if first_seconds is None:
                first_seconds = time.perf_counter() - started
            recorded[name] = results + [case() for _ in range(RECORDED_STEPS - 1)]
    return cases, {"first_seconds": first_seconds, "results": recorded, "failures": failures}


def _round(case: Step | Timed, seconds: float, steps: int | None = None) -> dict[str, Any]:
    """Run one case for about `seconds`, after a warm-up of a tenth of it; the median of the single steps' times.

    With `steps` it runs so many after one, whatever they take: ranks have to make equally many.
    """
    measure = case.seconds if isinstance(case, Timed) else _wall_clock(case)
    if steps is None:
        _run(measure, seconds / 10, least=1)
        times = _run(measure, seconds)
    else:
        measure()
        times = [measure() for _ in range(steps)]
    quick = sorted(times)[len(times) // 10]  # as fast as a tenth of them: when nobody else uses the machine, mostly
    medians = {"median_seconds": statistics.median(times), "quick_seconds": quick}
    return medians | {"mean_seconds": statistics.fmean(times), "steps": len(times)}


def _wall_clock(step: Step) -> Callable[[], float]:
    def seconds() -> float:
        before = time.perf_counter()
        step()
        return time.perf_counter() - before

    return seconds


def _run(measure: Callable[[], float], seconds: float, least: int = 3) -> list[float]:
    times: list[float] = []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or len(times) < least:
        times.append(measure())
    return times
