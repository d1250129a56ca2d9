"""What every worker process does: import its library, build its cases, and run a round when the parent says so.

Commands come as JSON lines on standard input, answers go as JSON lines to the original standard output (prints of the
libraries go to standard error). Between two rounds a worker is blocked on the pipe; it reports how much processor time
it used nevertheless, so that a library whose threads keep spinning is seen.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Step = Callable[[], float | None]
"""One synchronised step: it returns the loss (or None where there is none) as a Python number."""
Cases = dict[str, Step]
RECORDED_STEPS = 10


def serve(load: Callable[[], dict[str, str]], prepare: Callable[..., Cases]) -> None:
    """Answer the parent's commands until it closes the pipe.

    `load()` imports the library and returns versions; `prepare(*arguments)` builds and compiles the named cases.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    threads, arguments = int(sys.argv[1]), sys.argv[2:]
    _use_processors(threads)
    versions = load()
    _reset_high_water()
    baseline = high_water_bytes()
    print(json.dumps({"versions": versions}), file=answers)

    cases: Cases = {}
    idle_since, idle_seconds = time.process_time(), 0.0
    for line in sys.stdin:
        idle_seconds += time.process_time() - idle_since
        command = json.loads(line)
        if command["do"] == "build":
            cases, answer = _build(prepare, arguments)
        else:
            answer = _round(cases[command["case"]], command["seconds"])
            answer |= {"memory_bytes": high_water_bytes() - baseline, "idle_processor_seconds": idle_seconds}
        print(json.dumps(answer), file=answers)
        time.sleep(0.01)  # let the library's threads park before idling is watched
        idle_since = time.process_time()


def versions_of(*packages: str) -> dict[str, str]:
    """The installed versions of some distributions."""
    return {package: importlib.metadata.version(package) for package in packages}


def high_water_bytes() -> int:
    """The process's peak resident memory (VmHWM)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM: peak memory is measured on Linux only")


def _reset_high_water() -> None:
    """Set the high-water mark to what is in use now, so that a peak during the imports hides nothing."""
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
    first_seconds, recorded = 0.0, {}
    for number, (name, step) in enumerate(cases.items()):
        results = [step()]
        if number == 0:
            first_seconds = time.perf_counter() - started
        results += [step() for _ in range(RECORDED_STEPS - 1)]
        recorded[name] = results
    return cases, {"first_seconds": first_seconds, "results": recorded}


def _round(step: Step, seconds: float) -> dict[str, Any]:
    """Run one case for about `seconds`, after a warm-up of a tenth of it; the median of the single steps' times."""
    _run(step, seconds / 10)
    times = _run(step, seconds)
    return {"median_seconds": statistics.median(times), "mean_seconds": statistics.fmean(times), "steps": len(times)}


def _run(step: Step, seconds: float) -> list[float]:
    times: list[float] = []
    before = time.perf_counter()
    deadline = before + seconds
    while before < deadline or len(times) < 3:
        step()
        after = time.perf_counter()
        times.append(after - before)
        before = after
    return times
