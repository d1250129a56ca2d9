"""The parent's side: start a worker process per side, run their rounds in turn, and collect medians."""

from __future__ import annotations

import json
import os
import platform
import re
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parent.parent
ANSWER_SECONDS = 900.0
THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TVM_NUM_THREADS", "PULLBACK_NUM_THREADS",
)  # fmt: skip


@dataclass(frozen=True)
class Side:
    """One thing to measure: a worker program and its arguments, the Python that has its library, its thread count,
    and environment variables of its own.
    """

    name: str
    worker: str
    arguments: tuple[str, ...] = ()
    python: str = sys.executable
    threads: int = 2
    environment: tuple[tuple[str, str], ...] = ()


@dataclass
class Measurement:
    """What was seen of a side; `failure` says why there is nothing to see."""

    side: Side
    versions: dict[str, str] = field(default_factory=dict)
    first_seconds: float | None = None
    cached_first_seconds: float | None = None
    memory_bytes: int | None = None
    idle_processor_seconds: float = 0.0
    results: dict[str, list[float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)  # of single cases
    rounds: dict[str, list[float]] = field(default_factory=dict)
    quick: dict[str, list[float]] = field(default_factory=dict)  # of each round, the step at the tenth percentile
    about: dict[str, Any] = field(default_factory=dict)  # what else its worker said of it
    failure: str | None = None

    def seconds(self, case: str) -> float | None:
        """The median over the rounds of the median step of each."""
        return statistics.median(self.rounds[case]) if self.rounds.get(case) else None

    def merge(self, other: Measurement) -> None:
        """Add what another process saw of other cases."""
        self.results |= other.results
        self.rounds |= other.rounds
        self.quick |= other.quick
        self.failures |= other.failures
        self.failure = self.failure or other.failure

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.side.name, "worker": self.side.worker, "arguments": self.side.arguments,
            "threads": self.side.threads,
            "versions": self.versions, "step_seconds": {case: self.seconds(case) for case in self.rounds},
            "rounds": self.rounds, "quick": self.quick, "first_seconds": self.first_seconds,
            "cached_first_seconds": self.cached_first_seconds, "memory_bytes": self.memory_bytes,
            "idle_processor_seconds": self.idle_processor_seconds, "results": self.results, "failures": self.failures,
            "about": self.about, "failure": self.failure,
        }  # fmt: skip


class WorkerError(RuntimeError):
    """A worker process ended or kept silent; the message is its last error, or the last line it printed."""


class Asked(Protocol):
    """Who answers the parent's commands for a side: a context manager that ends it. Raises a WorkerError."""

    def __enter__(self) -> Asked: ...

    def __exit__(self, *_: object) -> None: ...

    def ask(self, **command: Any) -> dict[str, Any]: ...

    def answer(self) -> dict[str, Any]: ...


class Worker:
    """A running worker process; a context manager that ends it."""

    def __init__(self, side: Side, cache: Path) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in __exit__)
        self._process = subprocess.Popen(
            [side.python, "-m", f"benchmarks.workers.{side.worker}", str(side.threads), *side.arguments],
            cwd=ROOT, env=environment_of(side, cache),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
        )  # fmt: skip
        self._pending = b""

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def ask(self, **command: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WorkerError(self._last_words()) from None
        return self.answer()

    def answer(self) -> dict[str, Any]:
        deadline = time.monotonic() + ANSWER_SECONDS
        while b"\n" not in self._pending:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise WorkerError(f"no answer within {ANSWER_SECONDS:.0f} s")
            chunk = os.read(self._process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise WorkerError(self._last_words())
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return json.loads(line)

    def _last_words(self) -> str:
        code = self._process.wait(timeout=10)
        self._errors.seek(0)
        return last_words(self._errors.read(), code)


def last_words(errors: bytes, code: int) -> str:
    """Why a process ended, by what it wrote to standard error."""
    lines = [line.strip() for line in errors.decode(errors="replace").splitlines() if line.strip()]
    found = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Failed)\b", line)]
    return (found or lines or [f"ended with code {code}"])[-1]


def measure(
    sides: Iterable[Side],
    rounds: int,
    seconds: float,
    *,
    cached: bool = False,
    say: Callable[[str], None] = lambda line: None,
    start: Callable[[Side, Path], Asked] = Worker,
    tell: bool = False,
) -> list[Measurement]:
    """Build every side, then run `rounds` interleaved rounds of `seconds` for each case of each side.

    `cached` builds every side once more, in a new process over the caches that the first one left. `start` starts a
    side that is more than one process. With `tell` each side tells at the end what it knows of itself.
    """
    measurements = [Measurement(side) for side in sides]
    with tempfile.TemporaryDirectory(prefix="pullback-bench-") as folder:
        caches = {id(m): Path(folder) / str(number) for number, m in enumerate(measurements)}
        workers: dict[int, Asked] = {}
        try:
            for m in measurements:
                say(f"building {m.side.name}")
                workers[id(m)] = start(m.side, caches[id(m)])
                _guard(m, _build, workers[id(m)])
            for number in range(rounds):
                say(f"round {number + 1} of {rounds}")
                for m in measurements:
                    for case in m.results:
                        _guard(m, _round, workers[id(m)], case, seconds)
            for m in measurements if tell else ():
                say(f"asking {m.side.name}")
                _guard(m, _tell, workers[id(m)])
        finally:
            for worker in workers.values():
                worker.__exit__()
        if cached:
            for m in measurements:
                say(f"building {m.side.name} again, from its cache")
                with start(m.side, caches[id(m)]) as worker:
                    _guard(m, _build_again, worker)
    return measurements


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.machine(), "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(), "python": platform.python_version(),
    }  # fmt: skip


def foreign_load(seconds: float = 0.5) -> float:
    """How many processors' worth of time others use right now: measured while this process sleeps."""
    before, started = _busy_ticks(), time.monotonic()
    time.sleep(seconds)
    return (_busy_ticks() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - started)


def _busy_ticks() -> int:
    """Ticks in which some processor was not idle, from /proc/stat (user, nice, system, irq, softirq, steal)."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4]


def _guard(m: Measurement, action: Callable[..., None], *arguments: Any) -> None:
    """Run one action for a side that still lives; one side's failure is recorded and leaves the others running."""
    if m.failure is None:
        try:
            action(m, *arguments)
        except WorkerError as error:
            m.failure = str(error)


def _build(m: Measurement, worker: Asked) -> None:
    m.versions = worker.answer()["versions"]
    answer = worker.ask(do="build")
    m.first_seconds, m.results, m.failures = (answer[key] for key in ("first_seconds", "results", "failures"))
    m.about = answer["about"]


def _build_again(m: Measurement, worker: Asked) -> None:
    worker.answer()
    m.cached_first_seconds = worker.ask(do="build")["first_seconds"]


def _round(m: Measurement, worker: Asked, case: str, seconds: float) -> None:
    answer = worker.ask(do="round", case=case, seconds=seconds)
    m.rounds.setdefault(case, []).append(answer["median_seconds"])
    m.quick.setdefault(case, []).append(answer["quick_seconds"])
    m.memory_bytes = answer["memory_bytes"]
    m.idle_processor_seconds = answer["idle_processor_seconds"]


def _tell(m: Measurement, worker: Asked) -> None:
    m.about = worker.ask(do="tell")["about"]


def environment_of(side: Side, cache: Path) -> dict[str, str]:
    """The same thread count for every library, and caches that are empty at the start of the run."""
    cache.mkdir(parents=True, exist_ok=True)
    return (
        os.environ
        | dict.fromkeys(THREAD_VARIABLES, str(side.threads))
        | {
            "PYTHONPATH": str(ROOT),
            "XDG_CACHE_HOME": str(cache),
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(cache / "jax"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        | dict(side.environment)
    )
