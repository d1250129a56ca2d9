"""Jobs: sides that are several processes, the ranks, which answer the parent together.

Every rank has a socket to the parent and blocks on it between two rounds. So jobs live side by side and take turns in
every round, as single workers do, though ranks spin while they wait for each other.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Side, WorkerError, environment_of, last_words
from benchmarks.workers.protocol import SOCKET
from pullback.command.mpirun import Launcher

LEAST_STEPS = 3  # of a round
SECONDS_TO_ANSWER = 300.0  # then the ranks are taken to be stuck
_SECONDS_TO_END = 10.0
_TICK = 0.2


@dataclass(frozen=True)
class Job(Side):
    """A side of so many ranks, each with ``threads`` threads; all ranks together may use ``ranks * threads``
    processors.

    ``launcher`` starts them. Without one they are plain processes that find each other as PyTorch's do, by the
    variables RANK and WORLD_SIZE and the file INIT_FILE.
    """

    ranks: int = 2
    launcher: Launcher | None = None


class RunningJob:
    """The ranks of a job: started, asked, and ended."""

    def __init__(self, job: Side, cache: Path) -> None:
        assert isinstance(job, Job)
        self._job = job
        self._folder = tempfile.TemporaryDirectory(prefix="pullback-job-")
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in __exit__)
        address = str(Path(self._folder.name) / "ranks")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen(job.ranks)
        self._listener.settimeout(_TICK)
        self._connections: list[socket.socket] = []
        self._pending: dict[socket.socket, bytes] = {}
        self._step_seconds: dict[str, float] = {}  # by case, as the last round had it
        environment = environment_of(job, cache) | {SOCKET: address}
        processors = str(job.ranks * job.threads)
        program = [job.python, "-m", f"benchmarks.workers.{job.worker}", processors, *job.arguments]
        self._processes = [self._start(*one) for one in self._commands(program, environment)]

    def __enter__(self) -> RunningJob:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()
        deadline = time.monotonic() + _SECONDS_TO_END
        with contextlib.suppress(subprocess.TimeoutExpired):
            for process in self._processes:
                process.wait(max(0.0, deadline - time.monotonic()))
        self._kill()
        self._listener.close()
        self._errors.close()
        self._folder.cleanup()

    def ask(self, **command: Any) -> dict[str, Any]:
        """Send a command to all ranks and wait for their answers.

        Of a round all ranks make equally many steps: as many as fit in its seconds, by the round before.
        """
        if command["do"] != "round":
            return self._ask(command)
        case, seconds = command["case"], command["seconds"]
        if case not in self._step_seconds:
            self._step_seconds[case] = self._ask(command | {"steps": LEAST_STEPS})["mean_seconds"]
        steps = max(LEAST_STEPS, round(seconds / self._step_seconds[case]))
        answer = self._ask(command | {"steps": steps})
        self._step_seconds[case] = answer["mean_seconds"]
        return answer

    def answer(self) -> dict[str, Any]:
        """What all ranks say, as one answer (:func:`joined`)."""
        deadline = time.monotonic() + SECONDS_TO_ANSWER
        try:
            self._connect(deadline)
            return joined(self._lines(deadline))
        except WorkerError:
            self._kill()  # ranks that wait for another one spin
            raise

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        line = json.dumps(command).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):  # who has ended does not answer either
            for connection in self._connections:
                connection.sendall(line)
        return self.answer()

    def _commands(
        self, program: Sequence[str], environment: Mapping[str, str]
    ) -> list[tuple[Sequence[str], Mapping[str, str]]]:
        job = self._job
        if job.launcher is not None:
            return [(job.launcher.command(job.ranks, (), program, environment), environment)]
        own = {"WORLD_SIZE": str(job.ranks), "INIT_FILE": str(Path(self._folder.name) / "init")}
        return [(program, {**environment, **own, "RANK": str(rank)}) for rank in range(job.ranks)]

    def _start(self, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=self._errors, stderr=self._errors,
            start_new_session=True,  # killed as a group
        )  # fmt: skip

    def _connect(self, deadline: float) -> None:
        """Wait until all ranks are connected."""
        while len(self._connections) < self._job.ranks:
            if any(process.poll() is not None for process in self._processes):
                raise WorkerError(self._last_words())
            if time.monotonic() > deadline:
                raise WorkerError(f"{len(self._connections)} of {self._job.ranks} ranks came")
            with contextlib.suppress(TimeoutError):
                connection, _ = self._listener.accept()
                connection.setblocking(True)
                self._connections.append(connection)
                self._pending[connection] = b""

    def _lines(self, deadline: float) -> list[dict[str, Any]]:
        """A line from each rank."""
        found: dict[socket.socket, dict[str, Any]] = {}
        while len(found) < len(self._connections):
            waiting = [c for c in self._connections if c not in found]
            ready, _, _ = select.select(waiting, [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise WorkerError(f"no answer of {len(waiting)} ranks within {SECONDS_TO_ANSWER:.0f} s")
            for connection in ready:
                chunk = self._received(connection)
                line, newline, rest = (self._pending[connection] + chunk).partition(b"\n")
                self._pending[connection] = rest if newline else line
                if newline:
                    found[connection] = json.loads(line)
        return [found[connection] for connection in self._connections]

    def _received(self, connection: socket.socket) -> bytes:
        chunk = b""
        with contextlib.suppress(ConnectionError):
            chunk = connection.recv(1 << 16)
        if not chunk:
            raise WorkerError(self._last_words())
        return chunk

    def _last_words(self) -> str:
        """Why a rank ended."""
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_TICK)
        codes = [code for process in self._processes if (code := process.poll())]
        self._errors.seek(0)
        errors, launcher = self._errors.read(), self._job.launcher
        errors = errors if launcher is None else launcher.label.sub(b"", errors)
        return last_words(errors, codes[0] if codes else 0)

    def _kill(self) -> None:
        """End what still runs: the launcher first, which ends its ranks."""
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_SECONDS_TO_END / 2)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def joined(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One answer for those of all ranks: times and memory of the rank that has most, processor time of idling of all
    together, the mean of losses (each rank's is that of its rows, and ranks have equally many; or of all rows), and
    what else ranks say as a list."""
    found: dict[str, Any] = {}
    for key, value in answers[0].items():
        values = [answer[key] for answer in answers]
        if key == "results":
            cases = {case: zip(*(v[case] for v in values), strict=True) for case in value}
            found[key] = {case: [statistics.fmean(losses) for losses in steps] for case, steps in cases.items()}
        elif key == "about":
            found[key] = {"ranks": sorted(values, key=lambda one: one.get("rank", 0))}
        elif key == "idle_processor_seconds":
            found[key] = sum(values)
        elif key.endswith(("seconds", "bytes")):
            found[key] = max(values)
        else:
            found[key] = value
    return found
